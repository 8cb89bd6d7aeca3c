"""A retrieval response, readably: one block per pack, in the order it should be read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gateway.cli.terminal import line, styled
from retrieval.context_pack import Pack, UnitRef
from retrieval.contract import Response
from retrieval.wire import AppliedScope

EXCERPT: Final = 240
"""Characters of a unit's text that are shown."""


def show(out: Console, response: Response) -> None:
    """Print the response: its mode, then each pack with citations, gaps, suspects and scope."""
    out.print(styled(f"mode: {response.mode}", "bold"))
    if response.degraded:
        out.print(styled(f"degraded: {', '.join(response.degraded)}", "yellow"))
    if not response.packs:
        out.print("nothing found for this caller")
    for pack in response.packs:
        out.print(_pack(pack))


def _pack(pack: Pack) -> RenderableType:
    title = pack.thread_title or "no thread: units found by search"
    parts = [*_head(pack), _units(pack), *_notes(pack), _scope(pack.audience_scope_applied)]
    return Panel(Group(*parts), title=styled(title, "bold"), title_align="left", box=box.ROUNDED)


def _head(pack: Pack) -> Iterable[Text]:
    if pack.thread_id is not None:
        yield styled(f"thread {pack.thread_id}", "dim")
    if pack.purpose:
        yield styled(f"purpose: {pack.purpose}")
    risk = pack.authority_or_risk_level
    yield styled(f"authority: {risk.authority or '-'}   risk: {risk.risk_class or '-'}")
    if pack.last_health_status is not None:
        health = pack.last_health_status
        when = f" ({health.checked_at:%Y-%m-%d})" if health.checked_at else ""
        yield styled(f"health: {health.status}{when}")
    if pack.fallback_signal is not None:
        yield styled(f"fallback: {pack.fallback_signal.reason}", "yellow")
    if pack.signal_breakdown:
        parts = (f"{one.source} {one.score:.2f}" for one in pack.signal_breakdown)
        yield styled(f"found by: {', '.join(parts)}", "dim")


def _units(pack: Pack) -> RenderableType:
    """Every unit once, in reading order; what the order leaves out comes last."""
    everything = (*pack.canonical_units, *pack.supporting_units, *pack.latest_reports)
    units = {(unit.canonical_address, unit.revision): unit for unit in everything}
    order = sorted(pack.recommended_reading_order, key=lambda step: step.position)
    keys = [(step.canonical_address, step.revision) for step in order]
    reasons = {(s.canonical_address, s.revision): s.reason for s in order}
    listed = [*dict.fromkeys(key for key in keys if key in units)]
    listed += [key for key in units if key not in reasons]
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), expand=True)
    table.add_column(justify="right", style="bold", width=3)
    table.add_column(ratio=1)
    for number, key in enumerate(listed, start=1):
        table.add_row(str(number), _unit(units[key], reasons.get(key, "")))
    return Padding(table, (1, 0))


def _unit(unit: UnitRef, reason: str) -> RenderableType:
    facts: list[str] = [unit.kind]
    if unit.lifecycle_stage not in {unit.kind, "other"}:
        facts.append(f"stage {unit.lifecycle_stage}")
    facts += [f"authority {unit.authority}", f"risk {unit.risk_class}"]
    if unit.score is not None:
        facts.append(f"score {unit.score:.3f}")
    if reason:
        facts.append(reason)
    text = " ".join(line(unit.text).split())
    excerpt = text if len(text) <= EXCERPT else text[:EXCERPT].rstrip() + " …"
    return Group(
        styled(unit.title, "bold"),
        styled(f"[{unit.canonical_address}@{unit.revision}]", "cyan"),
        styled(" · ".join(facts), "dim"),
        styled(excerpt),
    )


def _notes(pack: Pack) -> Iterable[Text]:
    for gap in pack.known_gaps:
        yield styled(f"gap: {gap.title} ({gap.lifecycle_stage}, {gap.kind})", "yellow")
    for one in pack.suspect_links:
        text = f"suspect: [{one.canonical_address}] {one.reason}, confidence {one.confidence:.2f}"
        yield styled(text, "yellow")
    for link in pack.related_design_code_links:
        yield styled(f"link: [{link.from_address}] {link.relation} [{link.to_address}]")


def _scope(scope: AppliedScope) -> Text:
    parts = [
        f"audience {scope.audience}",
        f"profiles {', '.join(scope.profiles)}",
        *([f"task {scope.task_scope}"] if scope.task_scope else []),
        *([f"purpose {scope.purpose}"] if scope.purpose else []),
        f"tenants {', '.join(scope.tenants) or '-'}",
        f"jurisdictions {', '.join(scope.jurisdictions) or '-'}",
        f"policy {scope.policy_digest[:12]}",
    ]
    return styled("scope: " + "; ".join(parts), "dim")
