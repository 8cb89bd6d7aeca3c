"""Reads issuers, upstreams, routes and trusted peers from their YAML trees."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from policies.bindings import (
    COMPARTMENT,
    ClaimSource,
    CompartmentSource,
    FacetSource,
    IssuerBinding,
    Route,
    RouteMode,
    Segment,
    SegmentSort,
    TrustedPeer,
    Upstream,
)
from policies.faults import Faults, Place, shown
from policies.files import PolicyFiles
from policies.vocabulary import FACETS, Vocabulary
from policies.yamltree import Node, Reader

NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
ISSUER: Final = re.compile(r"idp:[a-z][a-z0-9_]{0,39}")
URL: Final = re.compile(r"https://[a-z0-9.-]+(:[0-9]+)?(/[A-Za-z0-9._~/-]*)?")
LOOPBACK_URL: Final = re.compile(
    r"http://(127\.0\.0\.1|\[::1\]|localhost)(:[0-9]+)?(/[A-Za-z0-9._~/-]*)?"
)
TOKEN_AUDIENCE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~:/-]+")
CLAIM: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.:/-]{0,99}")
ANY_WORD: Final = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
GROUP: Final = re.compile(r"grp:[a-z][a-z0-9_]{0,39}")
SUBJECT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@/-]{0,199}")
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""Asymmetric only: with ``HS*`` a public key would be a secret, ``none`` signs nothing."""
OPERATIONS: Final = ("retrieve", "pack", "unit", "scope")
HEADERS: Final = (
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-request-id",
)
_ISSUERS_FILE: Final = "rules/issuers.yaml"
_LITERAL: Final = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*")
_NAMED: Final = re.compile(r"\{([a-z][a-z0-9_]*)(\.\.\.)?\}")


def read_issuers(
    tree: Node, found: PolicyFiles, vocabulary: Vocabulary, faults: Faults
) -> tuple[IssuerBinding, ...]:
    """The bindings, in file order; two with one URL would let either speak for the other."""
    read = Reader(faults)
    top = read.fields(tree, required=("issuers",))
    entries = read.entries(top["issuers"], "issuer", ISSUER)
    issuers = tuple(
        _issuer(read, alias, node, found, vocabulary) for alias, node in entries.items()
    )
    seen: dict[str, str] = {}
    for issuer, node in zip(issuers, entries.values(), strict=True):
        if issuer.url and issuer.url in seen:
            faults.add(
                node.place,
                "duplicate_issuer",
                f"`{issuer.alias}` and `{seen[issuer.url]}` have one url",
                "bind one alias to one issuer",
            )
        seen.setdefault(issuer.url, issuer.alias)
    if not issuers and top["issuers"].sort == "map":
        faults.add(top["issuers"].place, "no_issuer", "no issuer is bound", "bind one at least")
    return issuers


def _issuer(
    read: Reader, alias: str, node: Node, found: PolicyFiles, vocabulary: Vocabulary
) -> IssuerBinding:
    fields = read.fields(
        node,
        required=(
            "url", "token_audience", "algorithms", "keys", "max_age", "claims", "compartments",
        ),
    )  # fmt: skip
    keys = read.fields(fields["keys"], optional=("jwks_uri", "jwks_file"))
    if len(keys) != 1 and fields["keys"].sort == "map":
        read.faults.add(
            fields["keys"].place,
            "keys",
            "exactly one source of keys is needed",
            "write `jwks_uri` or `jwks_file`",
        )
    compartments = read.fields(fields["compartments"], required=("tenants", "jurisdictions"))
    algorithms = read.words(fields["algorithms"], "asymmetric algorithm", ALGORITHMS)
    if not algorithms and fields["algorithms"].sort == "list":
        read.faults.add(fields["algorithms"].place, "empty_list", "no algorithm", "name one")
    overlaid = _ISSUERS_FILE in found.overlaid
    jwks_file, jwks = _jwks(read, keys.get("jwks_file"), found)
    return IssuerBinding(
        alias=alias,
        url=_url(read, fields["url"], "issuer url", overlaid=overlaid),
        token_audience=read.text(fields["token_audience"], "token audience", TOKEN_AUDIENCE),
        algorithms=algorithms,
        jwks_uri=_url(read, keys["jwks_uri"], "key url", overlaid=overlaid)
        if "jwks_uri" in keys
        else "",
        jwks_file=jwks_file,
        jwks=jwks,
        max_age_seconds=read.integer(fields["max_age"], "max_age", low=30, high=86_400),
        claims=_claims(read, fields["claims"], vocabulary),
        tenants=_compartment_source(read, compartments["tenants"]),
        jurisdictions=_compartment_source(read, compartments["jurisdictions"]),
    )


def _url(read: Reader, node: Node, what: str, *, overlaid: bool) -> str:
    """An https url. Plain http on loopback is for development and demo, hence only from an
    overlay: the policy folder itself can never bind such an issuer."""
    if overlaid and node.sort == "text" and LOOPBACK_URL.fullmatch(node.text):
        return node.text
    return read.text(node, what, URL)


def _jwks(read: Reader, node: Node | None, found: PolicyFiles) -> tuple[str, str]:
    if node is None:
        return "", ""
    name = f"rules/{read.text(node, 'file name', re.compile(r'[a-z0-9][a-z0-9_.-]*[.]json'))}"
    content = found.contents.get(name)
    if content is None:
        read.faults.add(node.place, "missing_file", f"{shown(name)} is missing", "add it")
        return name, ""
    try:
        document = json.loads(content)
        keys = document["keys"]
        private = [k for key in keys for k in ("d", "p", "q", "k", "dp", "dq", "qi") if k in key]
    except (ValueError, TypeError, KeyError):
        read.faults.add(Place(name), "bad_jwks", "the file is not a JSON Web Key Set", "correct it")
        return name, ""
    if private or not keys:
        read.faults.add(
            Place(name),
            "bad_jwks",
            "the key set holds a private or symmetric key" if private else "the key set is empty",
            "write public keys only",
        )
    return name, content.decode("utf-8", errors="replace")


def _claims(read: Reader, node: Node, vocabulary: Vocabulary) -> Mapping[str, ClaimSource]:
    known = {"groups": None, "roles": vocabulary.roles, "task_scopes": vocabulary.tasks}
    claims: dict[str, ClaimSource] = {}
    for ours, entry in read.fields(node, optional=tuple(known)).items():
        fields = read.fields(entry, required=("claim", "values"))
        closed = known[ours]
        claims[ours] = ClaimSource(
            read.text(fields["claim"], "claim name", CLAIM),
            {
                theirs: read.text(alias, "group alias", GROUP)
                if closed is None
                else read.word(alias, ours.removesuffix("s"), closed)
                for theirs, alias in read.entries(fields["values"], "word", ANY_WORD).items()
            },
        )
    return claims


def _compartment_source(read: Reader, node: Node) -> CompartmentSource:
    fields = read.fields(node, optional=("claim", "values"))
    if len(fields) != 1:
        if node.sort == "map":
            read.faults.add(
                node.place, "compartment", "one source is needed", "write `claim` or `values`"
            )
        return CompartmentSource("", ())
    if "claim" in fields:
        return CompartmentSource(read.text(fields["claim"], "claim name", CLAIM), ())
    return CompartmentSource(
        "", tuple(sorted(read.texts(fields["values"], "compartment", COMPARTMENT)))
    )


def read_upstreams(
    tree: Node, vocabulary: Vocabulary, issuers: Sequence[IssuerBinding], faults: Faults
) -> Mapping[str, Upstream]:
    read = Reader(faults)
    top = read.fields(tree, required=("upstreams",))
    aliases = [issuer.alias for issuer in issuers]
    upstreams: dict[str, Upstream] = {}
    credentials: dict[tuple[str, str], str] = {}
    for name, node in read.entries(top["upstreams"], "upstream", NAME).items():
        fields = read.fields(
            node,
            required=(
                "token_audience", "may_retrieve", "credential", "profile", "tenants", "facets",
            ),
        )  # fmt: skip
        credential = read.fields(fields["credential"], required=("issuer", "subject"))
        upstream = Upstream(
            name=name,
            token_audience=read.text(fields["token_audience"], "token audience", TOKEN_AUDIENCE),
            may_retrieve=read.truth(fields["may_retrieve"], "may_retrieve"),
            credential=(
                read.word(credential["issuer"], "issuer", aliases),
                read.text(credential["subject"], "subject", SUBJECT),
            ),
            profile=read.word(fields["profile"], "profile", tuple(vocabulary.profiles)),
            tenants=_tenants(read, fields["tenants"]),
            facets=_facet_sources(read, fields["facets"], vocabulary),
        )
        if upstream.credential in credentials:
            faults.add(
                fields["credential"].place,
                "shared_credential",
                f"`{name}` and `{credentials[upstream.credential]}` share a credential",
                "give each upstream its own",
            )
        credentials[upstream.credential] = name
        upstreams[name] = upstream
    return upstreams


def _tenants(read: Reader, node: Node) -> tuple[str, ...] | None:
    if node.sort == "text":
        read.word(node, "tenant list", ("caller",))
        return None
    return tuple(sorted(read.texts(node, "tenant", COMPARTMENT)))


def _facet_sources(
    read: Reader, node: Node, vocabulary: Vocabulary
) -> Mapping[str, FacetSource] | None:
    if node.sort == "nothing":
        return None
    sources: dict[str, FacetSource] = {}
    for facet, entry in read.fields(node, required=FACETS).items():
        fields = read.fields(entry, required=("field", "words"))
        sources[facet] = FacetSource(
            read.text(fields["field"], "field name", CLAIM),
            {
                theirs: read.word(ours, f"value of {facet}", vocabulary.live(facet))
                for theirs, ours in read.entries(fields["words"], "word", ANY_WORD).items()
            },
        )
    return sources


def read_routes(
    tree: Node, vocabulary: Vocabulary, upstreams: Mapping[str, Upstream], faults: Faults
) -> tuple[Route, ...]:
    """The routes in file order. Two that could answer one request are refused."""
    read = Reader(faults)
    top = read.fields(tree, required=("routes",))
    entries = read.entries(top["routes"], "route", NAME)
    routes = tuple(
        _route(read, name, node, vocabulary, upstreams) for name, node in entries.items()
    )
    places = [node.place for node in entries.values()]
    for position, route in enumerate(routes):
        for other in routes[:position]:
            if set(route.methods) & set(other.methods) and _overlap(route.segments, other.segments):
                faults.add(
                    places[position],
                    "route_overlap",
                    f"routes `{other.id}` and `{route.id}` could both answer one request",
                    "make their paths or methods disjoint",
                )
    return routes


def _route(
    read: Reader,
    name: str,
    node: Node,
    vocabulary: Vocabulary,
    upstreams: Mapping[str, Upstream],
) -> Route:
    fields = read.fields(
        node,
        required=("path", "methods", "mode"),
        optional=("upstream", "operation", "tool", "anonymous"),
    )

    def word(key: str, what: str, known: Collection[str]) -> str:
        return read.word(fields[key], what, known) if key in fields else ""

    mode = RouteMode(read.word(fields["mode"], "mode", tuple(RouteMode)) or RouteMode.GUARD)
    methods = read.words(fields["methods"], "method", METHODS)
    if not methods and fields["methods"].sort == "list":
        read.faults.add(fields["methods"].place, "empty_list", "no method is listed", "name one")
    wanted, excluded = (
        ("operation", "upstream") if mode is RouteMode.GUARD else ("upstream", "operation")
    )
    if wanted not in fields:
        read.faults.add(node.place, "missing_key", f"mode `{mode}` needs `{wanted}`", "write it")
    if excluded in fields:
        read.faults.add(
            fields[excluded].place, "stray_key", f"mode `{mode}` takes no `{excluded}`", "remove it"
        )
    upstream = word("upstream", "upstream", tuple(upstreams))
    if mode is RouteMode.GUARD_JSON and upstream and upstreams[upstream].facets is None:
        read.faults.add(
            node.place,
            "no_facets",
            f"upstream `{upstream}` has no facets map, so its units could not be inspected",
            "write the map in upstreams.yaml",
        )
    path = fields["path"].text
    return Route(
        id=name,
        path=path,
        segments=_segments(read, fields["path"]),
        methods=methods,
        mode=mode,
        upstream=upstream,
        operation=word("operation", "operation", OPERATIONS),
        tool=word("tool", "tool", vocabulary.tools),
        anonymous=word("anonymous", "audience", vocabulary.audiences),
    )


def _segments(read: Reader, node: Node) -> tuple[Segment, ...]:
    if node.sort != "text" or not node.text.startswith("/"):
        if node.sort != "broken":
            read.faults.add(node.place, "bad_path", "a path starts with `/`", "write it so")
        return ()
    parts = node.text.split("/")[1:]
    segments: list[Segment] = []
    for position, part in enumerate(parts):
        named = _NAMED.fullmatch(part)
        if named and named[2] and position == len(parts) - 1:
            segments.append(Segment(SegmentSort.REST, named[1]))
        elif named and not named[2]:
            segments.append(Segment(SegmentSort.NAME, named[1]))
        elif _LITERAL.fullmatch(part):
            segments.append(Segment(SegmentSort.LITERAL, part))
        else:
            read.faults.add(
                node.place,
                "bad_path",
                f"segment {shown(part)} is neither plain text, `{{name}}` nor a last `{{name...}}`",
                "patterns inside a segment, dot segments and empty segments are not allowed",
            )
    names = [s.text for s in segments if s.sort is not SegmentSort.LITERAL]
    if len(set(names)) != len(names):
        read.faults.add(node.place, "bad_path", "a name stands twice in the path", "rename one")
    return tuple(segments)


def _overlap(a: Sequence[Segment], b: Sequence[Segment]) -> bool:
    """Whether one canonical path could match both patterns."""
    for left, right in zip(a, b, strict=False):
        if SegmentSort.REST in (left.sort, right.sort):
            return True
        if left.sort is right.sort is SegmentSort.LITERAL and left.text != right.text:
            return False
    return len(a) == len(b)


def read_peers(tree: Node, faults: Faults) -> tuple[TrustedPeer, ...]:
    """The proxies that are believed. A network that is the whole internet is refused."""
    read = Reader(faults)
    top = read.fields(tree, required=("trusted_peers",))
    peers: list[TrustedPeer] = []
    for name, node in read.entries(top["trusted_peers"], "peer", NAME).items():
        fields = read.fields(node, required=("networks", "headers"))
        networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        for item in read.items(fields["networks"]):
            try:
                network = ipaddress.ip_network(item.text, strict=True)
            except ValueError as error:
                faults.add(item.place, "bad_network", str(error), "write it as `10.0.0.0/28`")
                continue
            if network.prefixlen < (8 if network.version == 4 else 32):
                faults.add(
                    item.place, "wide_network", f"{shown(item.text)} is too wide", "narrow it"
                )
            networks.append(network)
        headers = read.words(fields["headers"], "forwarding header", HEADERS)
        peers.append(TrustedPeer(name, tuple(networks), headers))
    return tuple(peers)
