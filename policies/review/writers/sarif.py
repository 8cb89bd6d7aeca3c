"""Findings as SARIF 2.1.0, which code hosts show beside the line of a change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from policies.review.finding import Finding

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def write(findings: Sequence[Finding], *, prefix: str = "") -> str:
    """One run of the tool ``gateway policy``. ``prefix`` is the folder's path in the repository."""
    rules = sorted({finding.code for finding in findings})
    document = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "gateway policy", "rules": [{"id": r} for r in rules]}},
                "columnKind": "unicodeCodePoints",
                "results": [_result(finding, prefix) for finding in findings],
            }
        ],
    }
    return json.dumps(document, indent=1, ensure_ascii=True) + "\n"


def _result(finding: Finding, prefix: str) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": f"{prefix}{finding.place.file}"}}
    if finding.place.line:
        region = {"startLine": finding.place.line}
        if finding.place.column:
            region["startColumn"] = finding.place.column
        place["region"] = region
    return {
        "ruleId": finding.code,
        "level": finding.level.value,
        "message": {"text": f"{finding.reason}; {finding.remedy}"},
        "locations": [{"physicalLocation": place}],
    }
