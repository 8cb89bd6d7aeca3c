"""The matrix: true to the rules, and the same in every form."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from policies.kinds import Kind
from policies.review.handbook import BEGIN, END, NoMarks, inserted
from policies.review.matrix import Mark, matrix, page
from policies.review.matrix_svg import picture
from policies.review.reading import Reading
from policies.review.writers import markdown, svg, text
from policies.review.writers.svg import Section
from policies.snapshot import DEFAULT_FOLDER
from policies.vocabulary import FACETS
from tests.policies.review.made import allowed

SVG = "{http://www.w3.org/2000/svg}"


def test_a_mark_says_whether_a_profile_reads_anything_of_a_value(shipped: Reading) -> None:
    """Counted from the rows, state by state, for one profile of each sort."""
    report = matrix(shipped)
    vocabulary, rows = shipped.snapshot.vocabulary, shipped.parsed.rows[Kind.UNITS]
    for profile in ("customer", "agent:incident"):
        column = list(report.profiles).index(profile)
        mine = [row for row in rows if profile in row.cells[0]]
        seen: dict[str, set[tuple[str, str]]] = {"none": set(), "granted": set()}
        live = [vocabulary.live(facet) for facet in FACETS]
        for state, consent in itertools.product(itertools.product(*live), seen):
            if allowed(mine, (profile, *state, consent)):
                seen[consent] |= set(zip(FACETS, state, strict=True))
        for key, marks in report.marks.items():
            wanted = (
                Mark.YES if key in seen["none"]
                else Mark.CONSENT if key in seen["granted"] else Mark.NO
            )  # fmt: skip
            assert marks[column] is wanted, key


def test_the_products_count_what_the_table_holds(shipped: Reading) -> None:
    report = matrix(shipped)
    for profile, (plain, consented) in report.counts.items():
        sizes = {"*": 0, "granted": 0}
        for row in report.products.rows:
            if row[0] == profile:
                sizes[row[-2]] += int(row[-1])
        assert sizes == {"*": plain, "granted": consented - plain}


def test_route_tells_whose_pages_open_a_socket_on_it(shipped: Reading) -> None:
    """Who may open what stands beside who may use what."""
    routes = tuple(
        replace(one, origins=("https://a.example", "absent")) if one.id == "portal-partner" else one
        for one in shipped.snapshot.routes
    )
    opened = replace(shipped, snapshot=replace(shipped.snapshot, routes=routes))
    modes = {row[0]: row[2] for row in matrix(opened).routes.rows}
    assert modes["portal-partner"].endswith(", sockets from https://a.example absent")
    assert "sockets" not in modes["portal-customer"]


def test_text_and_markdown_hold_every_table(shipped: Reading) -> None:
    shown = page(matrix(shipped))
    plain, marked = text.write(shown), markdown.write(shown)
    for line in ("portal-customer", "idp:staff", "agent:drafter", "risk_officer"):
        assert line in plain
        assert markdown.escaped(line) in marked
    assert marked.count("| --- |") >= 7
    assert "GET HEAD as customer" in plain


def test_the_picture_is_told_without_colour(shipped: Reading) -> None:
    """Three shapes, a title on each mark, a name and a description for a screen reader."""
    report = matrix(shipped)
    root = ET.fromstring(picture(report))  # noqa: S314 - our own text
    assert root.attrib["role"] == "img"
    names = {child.attrib.get("id"): child.tag for child in root}
    assert root.attrib["aria-labelledby"].split() == ["title", "desc"]
    assert {"title", "desc"} <= names.keys()
    titled = [
        mark for mark in root.iter() if mark.find(f"{SVG}title") is not None and mark is not root
    ]
    assert len(titled) == len(report.marks) * len(report.profiles)
    shapes = {(mark.tag.removeprefix(SVG), mark.attrib["class"]) for mark in titled}
    assert shapes == {("circle", "yes"), ("circle", "consent"), ("line", "no")}


def test_words_of_a_policy_cannot_become_markup() -> None:
    drawn = svg.write("<a>", "&", ["<script>"], [Section('"', {"]]>": ["yes"]})])
    root = ET.fromstring(drawn)  # noqa: S314 - our own text
    assert not [one for one in root.iter() if "script" in one.tag]
    assert "<script>" not in drawn
    assert markdown.escaped("<b>[x](y)|*z* `a|b`") == "\\<b\\>\\[x\\](y)\\|\\*z\\* `a|b`"
    assert markdown.escaped("`a|b`", cell=True) == "`a\\|b`"


def test_the_handbook_shows_the_shipped_policy(shipped: Reading) -> None:
    """Run `gateway policy matrix --into policies/README.md` when this fails."""
    text_now = (DEFAULT_FOLDER / "README.md").read_text()
    assert inserted(text_now, matrix(shipped)) == text_now


@pytest.mark.parametrize("text_now", ["", BEGIN, f"{END}{BEGIN}", f"{BEGIN}{END}{BEGIN}"])
def test_a_handbook_without_its_marks_is_left_alone(text_now: str, shipped: Reading) -> None:
    with pytest.raises(NoMarks):
        inserted(text_now, matrix(shipped))
