"""Outcomes of cases as JUnit XML: a suite per file, which CI systems show as tests."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Final

from policies.casework import Outcome

_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold, not even escaped."""


def write(outcomes: Sequence[Outcome]) -> str:
    """One document, ending in one line feed. A failure's text lists all of its problems."""
    failed = sum(not outcome.passed for outcome in outcomes)
    root = ET.Element(
        "testsuites", name="gateway policy", tests=str(len(outcomes)), failures=str(failed)
    )
    for file in dict.fromkeys(outcome.place.file for outcome in outcomes):
        inside = [outcome for outcome in outcomes if outcome.place.file == file]
        suite = ET.SubElement(
            root,
            "testsuite",
            name=_xml(file),
            tests=str(len(inside)),
            failures=str(sum(not outcome.passed for outcome in inside)),
        )
        for outcome in inside:
            _case(suite, outcome)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ET.Element, outcome: Outcome) -> None:
    place = outcome.place
    case = ET.SubElement(
        suite,
        "testcase",
        classname=_xml(place.file),
        name=_xml(f"{outcome.name} (line {place.line})" if place.line else outcome.name),
        file=_xml(place.file),
    )
    if place.line:  # 0 is the whole file
        case.set("line", str(place.line))
    if not outcome.passed:
        failure = ET.SubElement(case, "failure", message=_xml(outcome.problems[0]))
        failure.text = _xml("\n".join(outcome.problems))


def _xml(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
