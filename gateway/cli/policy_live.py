"""Live numbers of a policy change, and explanations of live units, asked and shown."""

from __future__ import annotations

from enum import StrEnum

from gateway.cli.failure import Exit, Failure
from gateway.cli.operator import Options, ask, in_ci, made, reason_of
from gateway.surfaces.admin.wire import (
    EXPLAIN_PATH,
    LIVE_PATH,
    ExplainReply,
    ExplainRequest,
    LiveReply,
    LiveRequest,
    Mode,
    NearRule,
    RuleAt,
    Touched,
)
from policies.review import live as review
from policies.review.change import words
from policies.review.page import Block, Heading, Lines, Page
from policies.review.reading import Reading


class Live(StrEnum):
    """How exactly the numbers are wanted; ``none`` asks nobody."""

    NONE = "none"
    BUCKETED = "bucketed"
    COUNTS = "counts"
    IDS = "ids"


def permitted(live: Live, options: Options) -> None:
    """Return for numbers that may be asked for here. Raises: Failure.

    A pipeline's log is read by more people than may know exact numbers.
    """
    if live is Live.NONE:
        return
    if in_ci() and live is not Live.BUCKETED:
        reason = f"`--live {live}` is not for a pipeline (CI is set)"
        remedy = "use `--live bucketed` here, and ask for more at a terminal, as yourself"
        raise Failure(Exit.USAGE, "live_in_ci", reason, remedy)
    reason_of(options)


def numbers(live: Live, old: Reading, new: Reading, options: Options) -> review.LiveNumbers:
    """What a running gateway says about a change. Raises: Failure."""
    changes = [
        {"profile": one.profile, "gained": one.gained, "lost": one.lost}
        for one in review.classes_of(old, new)
    ]
    request = made(
        LiveRequest,
        {"reason": reason_of(options), "mode": Mode(live.value), "digest": new.snapshot.digest,
         "changes": changes},
    )  # fmt: skip
    reply = ask(options, LIVE_PATH, request, LiveReply)
    return review.LiveNumbers(
        live.value,
        reply.live_digest,
        tuple(
            review.ProfileTouched(one.profile, _touched(one.gained), _touched(one.lost))
            for one in reply.profiles
        ),
    )


def _touched(side: Touched) -> review.Touched:
    ids = tuple(map(str, side.ids)) if side.ids is not None else None
    return review.Touched(side.units, side.threads, ids, side.more)


def explanation(
    unit: str,
    profile: str,
    *,
    tenants: list[str],
    jurisdictions: list[str],
    consent: str,
    options: Options,
) -> ExplainReply:
    """Why one live unit is readable for a caller of that profile, or not. Raises: Failure."""
    caller = {
        "profile": profile,
        "tenants": tuple(tenants),
        "jurisdictions": tuple(jurisdictions),
        "consent": consent,
    }
    fields = {"reason": reason_of(options), "unit": unit, "caller": caller}
    return ask(options, EXPLAIN_PATH, made(ExplainRequest, fields), ExplainReply)


def page(reply: ExplainReply) -> Page:
    """The explanation for people."""
    state = (
        " ".join(f"{facet}={word}" for facet, word in reply.state.items())
        if reply.state is not None
        else "no class: unlabelled, unknown or contradictory"
    )
    lines = [
        f"unit {reply.unit_id} under policy {reply.policy_digest[:12]}",
        f"{state} (class {reply.class_id}), consent {reply.consent}",
    ]
    if reply.override_until is not None:
        until = reply.override_until.isoformat(timespec="seconds")
        lines.append(f"looser than its label until {until}, by an override")
    for one in reply.compartments:
        own = words(one.caller)
        fits = "fits" if one.fits else "does not fit"
        lines.append(f"{one.name} {one.unit} {fits}: the caller has {own}")
    verb = "allowed" if reply.class_allowed else "denied"
    lines += [f"{verb} by {_at(one)}" for one in reply.deciding]
    lines += [f"{rule} matches and is overruled" for rule in reply.overruled]
    if not reply.deciding and reply.state is not None:
        lines.append("no rule speaks of it, hence denied")
    blocks: list[Block] = [Lines(tuple(lines))]
    if reply.nearest:
        blocks.append(Heading("Nearest allow rules"))
        blocks += [_near(one) for one in reply.nearest]
    return Page(f"{reply.verdict} {reply.profile}", tuple(blocks))


def _near(near: NearRule) -> Lines:
    misses = (
        f"  {miss.axis} is {miss.asked}, the rule wants {words(miss.accepted)}"
        for miss in near.misses
    )
    return Lines((f"{_at(near.rule)} fails on", *misses))


def _at(one: RuleAt) -> str:
    return f"{one.rule} at {one.file}:{one.line}"
