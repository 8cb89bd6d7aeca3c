"""Reads ``rules/issuers.yaml``: whose tokens are believed, and what their words mean."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from policies.bindings import COMPARTMENT, ClaimSource, CompartmentSource, IssuerBinding
from policies.faults import Faults, Place, shown
from policies.files import PolicyFiles
from policies.vocabulary import Vocabulary
from policies.yamltree import Node, Reader

FILE: Final = "rules/issuers.yaml"
ISSUER: Final = re.compile(r"idp:[a-z][a-z0-9_]{0,39}")
URL: Final = re.compile(r"https://[a-z0-9.-]+(:[0-9]+)?(/[A-Za-z0-9._~/-]*)?")
LOOPBACK_URL: Final = re.compile(
    r"http://(127\.0\.0\.1|\[::1\]|localhost)(:[0-9]+)?(/[A-Za-z0-9._~/-]*)?"
)
TOKEN_AUDIENCE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~:/-]+")
ANY_WORD: Final = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
GROUP: Final = re.compile(r"grp:[a-z][a-z0-9_]{0,39}")
SOURCE: Final = re.compile(r"(?!unclaimed$)[a-z0-9][a-z0-9._-]{0,63}")
"""The name of a source of documents; `unclaimed` is nobody's."""
CLAIM: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.:/-]{0,99}")
ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""Asymmetric only: with ``HS*`` a public key would be a secret, ``none`` signs nothing."""


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
    overlaid = FILE in found.overlaid
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
    closed_ones = {"roles": vocabulary.roles, "task_scopes": vocabulary.tasks}
    open_ones = {"groups": ("group alias", GROUP), "sources": ("name of a source", SOURCE)}
    claims: dict[str, ClaimSource] = {}
    for ours, entry in read.fields(node, optional=(*open_ones, *closed_ones)).items():
        fields = read.fields(entry, required=("claim", "values"))
        closed = closed_ones.get(ours)
        claims[ours] = ClaimSource(
            read.text(fields["claim"], "claim name", CLAIM),
            {
                theirs: read.text(alias, *open_ones[ours])
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
