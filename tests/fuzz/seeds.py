"""Where the search starts: every shipped file as it is, and with every measured trap in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.policies.traps import CSV, FIRST, MODEL_EDITS, PATHS, ROUTES, ROWS, UNITS

_CONSENT_CLOSES = "p, U-X-ODD, customer, all, all, all, low, all, faq, granted, deny\n"
_BEHIND_A_DENY = (
    "p, U-ODD-1, customer, public, superseded, published, low, enacted, faq, none, allow\n"
)
_EDITS: list[tuple[str, str, str]] = [
    *((UNITS, old, new) for _, old, new in MODEL_EDITS),
    *((ROUTES, FIRST, row) for _, row, _ in ROWS),
    *(("rules/routes.yaml", "path: /v1/scope", f'path: "{path}"') for path in PATHS),
    (CSV, "# Never, whatever", f"{_CONSENT_CLOSES}# Never, whatever"),
    (CSV, "# Never, whatever", f"{_BEHIND_A_DENY}# Never, whatever"),
    (CSV, "p, U-PAR-1, partner, public|partner,", "p, U-PAR-1, partner, public|employee,"),
    (CSV, "p, U-X-RISK, all,", "p, U-X-RISK, customer|partner,"),
    ("rules/issuers.yaml", "staff-all: grp:staff", "staff-all: employee"),
    ("rules/issuers.yaml", "    token_audience: https://gateway.example\n", ""),
    ("rules/upstreams.yaml", "profile: partner", "profile: employee"),
    ("rules/upstreams.yaml", "may_retrieve: true", "may_retrieve: no"),
    ("rules/vocabulary.yaml", "retired: {}", "retired: {kind: [test]}"),
    ("rules/vocabulary.yaml", "anonymous", "anonymous: &a [*a]"),
    ("rules/trusted_peers.yaml", "{}", "{lb: {networks: [10.0.0.0/24], headers: [forwarded]}}"),
    ("mappings/native.yaml", "visibility", "&v visibility"),
]


def seeds(contents: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
    """The files that each seed writes anew. An edit whose text has gone is a fault of this list."""
    for name, content in contents.items():
        yield {name: content}
        if name.startswith("rules/"):
            yield {name: b"\xef\xbb\xbf" + content}
            yield {name: b""}
    for name, old, new in _EDITS:
        text = contents[name].decode()
        if old not in text:
            raise LookupError(f"`{old}` is not in {name} any more")
        yield {name: text.replace(old, new, 1).encode()}
