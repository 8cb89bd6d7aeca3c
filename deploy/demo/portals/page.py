"""The one page of a portal, as HTML that cannot carry markup of others.

Everything is built as elements and serialised once: text stays text whatever stands in it,
by construction and not by remembering to escape.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final
from xml.etree.ElementTree import Element, tostring

from deploy.demo.portals.assertion import Visitor
from deploy.demo.portals.backend import NO_DELEGATION

STYLE: Final = (Path(__file__).parent / "style.css").read_text("utf-8")
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
CONTENT_SECURITY_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)


def element(tag: str, *children: Element | str, **attributes: str) -> Element:
    """An element with text and elements inside, in order. ``class_`` stands for ``class``."""
    made = Element(tag, {name.rstrip("_"): value for name, value in attributes.items()})
    last: Element | None = None
    for child in children:
        if isinstance(child, Element):
            made.append(child)
            last = child
        elif last is None:
            made.text = (made.text or "") + child
        else:
            last.tail = (last.tail or "") + child
    return made


def page(title: str, style: str, visitor: Visitor, question: str, body: Iterable[Element]) -> str:
    """The whole document."""
    document = element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element("title", title),
            element("style", STYLE),
        ),
        element(
            "body",
            element(
                "header",
                element("h1", title),
                element(
                    "p",
                    f"You are here as {visitor.audience}, policy {visitor.digest[:12]}",
                ),
            ),
            element("main", _search(question), *body),
            class_=style,
        ),
        lang="en",
    )
    return "<!doctype html>\n" + tostring(document, encoding="unicode", method="html")


def _search(question: str) -> Element:
    return element(
        "form",
        element("input", name="q", value=question, placeholder="Ask a question", maxlength="400"),
        element("button", "Ask", type="submit"),
        method="get",
    )


def answer(document: dict[str, Any]) -> list[Element]:
    """The packs of an answer, in its order; says so when there is none."""
    packs = document["packs"]
    if not packs:
        return [element("section", element("p", "Nothing was found that you may read."))]
    return [part for pack in packs for part in _pack(pack)]


def refused(code: str) -> list[Element]:
    """What is shown instead of an answer: the code and nothing behind it."""
    text = f"No answer at present ({code})."
    if code == NO_DELEGATION:
        text = "Sign in to ask: for a visitor without a credential nothing is retrieved."
    return [element("section", element("p", text), class_="warn")]


def welcome() -> list[Element]:
    return [element("section", element("p", "Ask anything about our products and terms."))]


def _pack(pack: dict[str, Any]) -> list[Element]:
    suspects = {link["canonical_address"] for link in pack["suspect_links"]}
    head: list[Element] = []
    if pack["thread_title"]:
        head.append(element("h2", pack["thread_title"]))
        head.append(element("p", pack["purpose"] or "", class_="note"))
    else:
        head.append(element("h2", "Found by search"))
        head.append(element("p", "No topic fits the question; these texts do.", class_="note"))
    scope = pack["audience_scope_applied"]
    head.append(element("p", f"Filtered for: {', '.join(scope['profiles'])}", class_="note"))
    parts = [element("section", *head)]
    for name in ("canonical_units", "supporting_units", "latest_reports"):
        parts += [_unit(unit, unit["canonical_address"] in suspects) for unit in pack[name]]
    return parts + _notes(pack)


def _unit(unit: dict[str, Any], suspect: bool) -> Element:
    children = [
        element("h3", unit["title"]),
        element("p", unit["text"]),
        element("cite", f"[{unit['canonical_address']} @ {unit['revision']}]"),
        element(
            "p",
            f"{unit['kind']}, {unit['authority']}, risk {unit['risk_class']}",
            class_="note",
        ),
    ]
    if suspect:
        children.append(element("p", "Needs a human look before you rely on it.", class_="note"))
    return element("article", *children, class_="warn" if suspect else "unit")


def _notes(pack: dict[str, Any]) -> list[Element]:
    gaps = [f"{gap['title']} ({gap['kind']})" for gap in pack["known_gaps"]]
    suspects = [
        f"{link['canonical_address']}: {link['reason']}, confidence {link['confidence']:.2f}"
        for link in pack["suspect_links"]
    ]
    return [*_listed("Not written yet", gaps), *_listed("Uncertain", suspects)]


def _listed(title: str, lines: Sequence[str]) -> list[Element]:
    if not lines:
        return []
    items = element("ul", *(element("li", line) for line in lines))
    return [element("section", element("h3", title), items)]
