"""Reads ``rules/upstreams.yaml`` and ``rules/trusted_peers.yaml``: who stands around us."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Final

from policies.bindings import (
    COMPARTMENT,
    CompartmentField,
    FacetMap,
    FacetSource,
    IssuerBinding,
    TrustedPeer,
    Upstream,
)
from policies.decision import SHARED
from policies.faults import Faults, shown
from policies.issuer_file import ANY_WORD, CLAIM, TOKEN_AUDIENCE
from policies.vocabulary import FACETS, Vocabulary
from policies.yamltree import Node, Reader

FILE: Final = "rules/upstreams.yaml"
PEERS_FILE: Final = "rules/trusted_peers.yaml"
NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
COMPARTMENTS: Final = ("tenant", "jurisdiction")
_MAPPED_IPV4: Final = ipaddress.IPv6Network("::ffff:0:0/96")
FIXED: Final = re.compile(rf"{re.escape(SHARED)}|{COMPARTMENT.pattern}")
SUBJECT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@/-]{0,199}")
HEADERS: Final = (
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-request-id",
    # what a forward-auth dialect asks with (`gateway/surfaces/forward_auth`)
    "x-forwarded-method",
    "x-forwarded-uri",
    "x-original-method",
    "x-original-uri",
    "x-original-host",
    "x-ext-authz-method",
    "x-ext-authz-path",
    "x-ext-authz-host",
)


def read_upstreams(
    tree: Node, vocabulary: Vocabulary, issuers: Sequence[IssuerBinding], faults: Faults
) -> Mapping[str, Upstream]:
    """The upstreams by name; what is wrong with them is in ``faults``."""
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
            facets=_facet_map(read, fields["facets"], vocabulary),
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


def _facet_map(read: Reader, node: Node, vocabulary: Vocabulary) -> FacetMap | None:
    if node.sort == "nothing":
        return None
    sources: dict[str, FacetSource] = {}
    labels = read.fields(node, required=FACETS, optional=COMPARTMENTS)
    for facet in FACETS:
        fields = read.fields(labels[facet], required=("field", "words"))
        sources[facet] = FacetSource(
            read.text(fields["field"], "field name", CLAIM),
            {
                theirs: read.word(ours, f"value of {facet}", vocabulary.live(facet))
                for theirs, ours in read.entries(fields["words"], "word", ANY_WORD).items()
            },
        )
    tenant, jurisdiction = (
        _compartment(read, node, compartment, labels.get(compartment))
        for compartment in COMPARTMENTS
    )
    return FacetMap(sources, tenant, jurisdiction)


def _compartment(read: Reader, around: Node, name: str, node: Node | None) -> CompartmentField:
    """One compartment of an upstream's units; that all of them are shared must be written out."""
    remedy = f'write `{name}: {{field: THEIR_FIELD}}`, or `{name}: {{fixed: "*"}}` for shared units'
    nowhere = CompartmentField("", "", frozenset())
    if node is None:
        reason = f"no unit of this upstream would have a {name}"
        read.faults.add(around.place, "missing_compartment", reason, remedy)
        return nowhere
    fields = read.fields(node, optional=("field", "fixed", "shared"))
    if node.fields is None:
        return nowhere
    if ("field" in fields) == ("fixed" in fields) or ("fixed" in fields and "shared" in fields):
        reason = f"the {name} is neither plainly a field nor plainly fixed"
        read.faults.add(node.place, "ambiguous_compartment", reason, remedy)
        return nowhere
    if "fixed" in fields:
        return CompartmentField("", read.text(fields["fixed"], name, FIXED), frozenset())
    return CompartmentField(
        read.text(fields["field"], "field name", CLAIM),
        "",
        frozenset(read.texts(fields["shared"], "word", ANY_WORD))
        if "shared" in fields
        else frozenset(),
    )


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
            if network.prefixlen < (8 if network.version == 4 else 32) or _hides_ipv4(network):
                faults.add(
                    item.place, "wide_network", f"{shown(item.text)} is too wide", "narrow it"
                )
            networks.append(network)
        headers = read.words(fields["headers"], "forwarding header", HEADERS)
        peers.append(TrustedPeer(name, tuple(networks), headers))
    return tuple(peers)


def _hides_ipv4(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    """Whether an IPv6 network stands for IPv4 addresses: its prefix says nothing of its width."""
    return network.version == 6 and network.overlaps(_MAPPED_IPV4)
