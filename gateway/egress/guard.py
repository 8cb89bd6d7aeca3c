"""Station *inspect*: nothing governed leaves unless the record of truth permits it now.

Theory
    Retrieval filtered already. This is the second, independent check: other code, another
    database role, another moment, over the response as it crossed the door. A denied unit
    here is a *wrong-audience result*: it never leaves, it is made durable before anything
    leaves, and the caller gets the answer that it would get had the unit never existed, or
    else the refusal that any fault of a store gives. The hard error is the operators'.

Order of one guarded request
    ask -> look up -> (denied, late or doubtful? ask once more -> look up) -> journal -> answer

    *Doubtful* is a unit that an index offered and retrieval's truth refused, and that the
    registry permits now: retrieval read a moment before the unit became visible (the index is
    fed after the commit, so it can be newer than an open reader). Asked again, retrieval reads
    a later moment. If it refuses the same unit again, the stores contradict each other: an
    event, and no answer.

    A unit that may be seen must also be *itself*: an address, a revision or a text that is not
    the id's own (``binding.py``) is denied like a leak. *Late* is a unit that was updated since
    retrieval read it: asked for again; late twice, it is a stale answer and none leaves.

    Retrieval wrote each answer down as delivered before it handed it over. Whatever the guard does
    not pass on, asked again or refused, it calls back there (*withheld*), so that no pack of it can
    be cited. Where that cannot be written, nothing leaves.

    Whatever interrupts this after a denied unit was seen (time, a store, a shutdown), the
    event is still recorded.

Source: architecture section 6 ("What an event is").
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from gateway.egress.binding import compared
from gateway.egress.cursors import Cursors
from gateway.egress.facets import FacetFilter
from gateway.egress.findings import Findings, Occasion, count_kept_back, event_of
from gateway.egress.inventory import keys_of, stray_citations
from gateway.egress.publication import body_of, misshapen, scopes_of
from gateway.egress.registry import Key, Registered, Registry, RegistryUnavailable
from gateway.errors import Code, Refusal
from gateway.ingress.strict_json import Json
from gateway.journal.contract import Breaches
from gateway.journal.event import EventAction, Journal, JournalError, SecurityEvent
from gateway.relay.retrieval import RetrievalFault, RetrievalPort
from policies.bindings import FacetMap
from policies.decision import Scope
from policies.subject import Subject
from policies.vocabulary import Vocabulary
from retrieval.contract import Answer, Ask, CheckResponse, UnitsRequest

INDEX_LAYERS: Final = frozenset({"vector_index", "lexical_index", "thread_index"})
"""Layers that a change reaches after its commit, so that they can be ahead of a reader."""


class PolicyMoved(Exception):
    """The database enforces another revision than the request was placed under.

    ``digest`` is that revision's; empty when it is not known which one it is.
    """

    def __init__(self, digest: str = "") -> None:
        self.digest = digest
        super().__init__(digest)


@dataclass(frozen=True, slots=True)
class Passed:
    """A body that may leave, and the event that the request left behind, if any."""

    body: bytes
    event: SecurityEvent | None


@dataclass(frozen=True, slots=True)
class Round:
    """One answer and its look-up: what in it may not leave, and the class of each unit that is
    out of date."""

    answer: Answer
    keys: frozenset[Key]
    registered: Registered
    denied: frozenset[Key]
    late: Mapping[UUID, int]


class Guard:
    """Asks retrieval, inspects the answer, and lets a body pass or refuses."""

    def __init__(
        self,
        *,
        retrieval: RetrievalPort,
        registry: Registry,
        journal: Journal,
        cursors: Cursors | None = None,
    ) -> None:
        """``cursors``: of all gateways that serve one listing; None = this process's own."""
        self._retrieval = retrieval
        self._registry = registry
        self._journal = journal
        self._cursors = cursors or Cursors.fresh()

    async def answer(
        self,
        ask: Ask,
        subject: Subject,
        occasion: Occasion,
        relayed: Callable[[Answer], None],
        cursor: str = "",
    ) -> Passed:
        """The body for this subject. ``cursor`` is the caller's, where a listing goes on.

        ``relayed`` is told of each answer before it is inspected, for the request's trace.

        Raises: Refusal ``not_found`` (hidden and absent alike), ``not_delivered``,
        ``cursor_outdated``, ``bad_query``, ``retrieval_unavailable``, ``index_unavailable`` or
        ``journal_unavailable``; PolicyMoved.
        """
        listing = self._cursors.of(subject, ask.units or UnitsRequest())
        if ask.units is not None and cursor:
            page = ask.units.model_copy(update={"after": listing.open(cursor)})
            ask = ask.model_copy(update={"units": page})
        findings = Findings()
        try:
            passed, answer_id = await self._guarded(
                ask, subject, occasion, findings, relayed, listing.close
            )
            if not await self._withhold(ask, findings.written - {answer_id}):
                raise Refusal(Code.RETRIEVAL_UNAVAILABLE, "what was withheld stands as delivered")
        except BaseException:
            # shielded as the event is, and after it; what stopped the answer is what is told
            if findings.written:
                await asyncio.shield(self._withhold(ask, findings.written))
            raise
        return passed

    async def _guarded(
        self,
        ask: Ask,
        subject: Subject,
        occasion: Occasion,
        findings: Findings,
        relayed: Callable[[Answer], None],
        cursor: Callable[[str], str],
    ) -> tuple[Passed, UUID | None]:
        """What may leave, with the id that retrieval wrote it down under, if it did."""
        action = EventAction.REFUSED
        try:
            last = await self._inspected(ask, subject, findings, relayed)
            body = body_of(last.answer, cursor)
            action = EventAction.WITHHELD
            occasion.tally.showed(last.keys, last.registered)
        except Refusal as refusal:
            if refusal.code in _NOTHING_HERE:
                action = EventAction.WITHHELD
            raise
        finally:
            # Shielded: a caller that leaves or a shutdown must not lose the event.
            if findings.wrong or findings.stale:
                count_kept_back(findings, subject, occasion)
                await asyncio.shield(self._record(findings, action, subject, occasion))
        if last.answer.check is not None:
            await self._record_breaches(last.answer.check, subject, occasion)
        return Passed(body, findings.event), last.answer.answer_id

    async def _withhold(self, ask: Ask, answers: Collection[UUID]) -> bool:
        """Call these answers back; whether retrieval wrote that down."""
        told = True
        for answer_id in answers:
            back = Ask(
                operation="withheld",
                subject=ask.subject,
                reference=str(answer_id),
                request_id=ask.request_id,
                deadline_ms=_WITHHOLD_MS,
            )
            try:
                told = (await self._retrieval.ask(back)).status == 200 and told
            except RetrievalFault:
                told = False
        return told

    async def enforced(self) -> str:
        """The digest of the revision that the database enforces now, empty when there is none.

        Raises: Refusal ``retrieval_unavailable``.
        """
        try:
            return (await self._registry.look_up((), subject_id="", purpose="")).digest
        except RegistryUnavailable as error:
            raise Refusal(Code.RETRIEVAL_UNAVAILABLE, f"registry: {error}") from error

    async def in_force(self, subject: Subject) -> None:
        """Return when the database enforces the revision that this subject was placed under.

        Raises: Refusal ``retrieval_unavailable``; PolicyMoved.
        """
        registered = await self._look_up((), subject)
        if registered.digest != subject.grant.digest:
            raise PolicyMoved(registered.digest)

    async def filtered(
        self,
        document: Json,
        *,
        labels: FacetMap,
        upstream: str,
        vocabulary: Vocabulary,
        subject: Subject,
        occasion: Occasion,
    ) -> Passed:
        """The JSON of an upstream less the units that this subject may not see.

        Raises: Refusal ``not_found`` when nothing is left, ``retrieval_unavailable`` or
        ``journal_unavailable``; PolicyMoved when it has to be filtered for another subject.
        """
        findings, action = Findings(), EventAction.REFUSED
        sieve = FacetFilter(labels, vocabulary, scope_of(subject, consented=()))
        try:
            kept = sieve.kept(document)
            for unit_id, class_id in sieve.denied.items():
                findings.wrong.add(unit_id, class_id, f"upstream:{upstream}")
            registered = await self._look_up((), subject)
            if registered.digest != subject.grant.digest:
                raise PolicyMoved(registered.digest)
            action = EventAction.WITHHELD
            if kept is None:
                raise Refusal(Code.NOT_FOUND, "nothing that may leave")
            occasion.tally.showed_foreign(sieve.shown)
        finally:
            if findings.wrong:
                count_kept_back(findings, subject, occasion)
                await asyncio.shield(self._record(findings, action, subject, occasion))
        # stdlib: integers of any length stay what they are
        text = json.dumps(kept, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return Passed(text.encode(), findings.event)

    async def _look_up(self, keys: Collection[Key], subject: Subject) -> Registered:
        try:
            return await self._registry.look_up(
                keys, subject_id=subject.subject_id, purpose=subject.purpose
            )
        except RegistryUnavailable as error:
            raise Refusal(Code.RETRIEVAL_UNAVAILABLE, f"registry: {error}") from error

    async def _inspected(
        self, ask: Ask, subject: Subject, findings: Findings, relayed: Callable[[Answer], None]
    ) -> Round:
        first = await self._round(ask, subject, findings, relayed)
        if not (first.denied or first.late or findings.doubtful):
            return _served(first)
        exclude = tuple(sorted(one for _, one in first.denied))
        anew = ask.model_copy(update={"exclude": exclude})
        again = await self._round(anew, subject, findings, relayed)
        findings.behind(again.late)
        if again.denied:
            raise Refusal(Code.RETRIEVAL_UNAVAILABLE, "denied units after asking again")
        if again.late:
            raise Refusal(Code.RETRIEVAL_UNAVAILABLE, "older revisions after asking again")
        if findings.contradicted:
            raise Refusal(Code.RETRIEVAL_UNAVAILABLE, "retrieval refuses what the labels permit")
        return _served(again)

    async def _round(
        self, ask: Ask, subject: Subject, findings: Findings, relayed: Callable[[Answer], None]
    ) -> Round:
        """One question and its look-up; what is denied is noted already."""
        try:
            answer = await self._retrieval.ask(ask)
        except RetrievalFault as error:
            raise Refusal(Code.RETRIEVAL_UNAVAILABLE, str(error)) from error
        relayed(answer)
        findings.note(answer)
        if answer.status == 409:
            raise PolicyMoved
        _check_form(answer, ask)
        keys, refused = keys_of(answer), _refused_by_truth(answer)
        if answer.status >= 500 and not keys and not refused:
            raise _refusal(answer)  # without content there is nothing to look up
        registered = await self._look_up(keys | refused, subject)
        findings.consented.update(registered.consented)
        content = compared(answer, registered)
        denied = denied_of(keys, registered, subject) | content.false
        findings.leak(denied, registered)
        hidden = denied_of(refused, registered, subject)
        findings.doubt(unit_id for _, unit_id in refused - hidden)
        if registered.digest != subject.grant.digest:
            raise PolicyMoved(registered.digest)
        late = {key[1]: registered.labels[key].class_id for key in content.late - denied}
        return Round(answer, keys, registered, denied, late)

    async def _record(
        self, findings: Findings, action: EventAction, subject: Subject, occasion: Occasion
    ) -> None:
        event = event_of(findings, action, subject, occasion)
        try:
            await self._journal.record(event)
        except JournalError as error:
            raise Refusal(Code.JOURNAL_UNAVAILABLE, str(error)) from error
        findings.event = event

    async def _record_breaches(
        self, found: CheckResponse, subject: Subject, occasion: Occasion
    ) -> None:
        breaches = Breaches.of(found, subject, request_id=occasion.request_id)
        if not breaches.counts:
            return
        try:
            await self._journal.record_breaches(breaches)
        except JournalError as error:
            raise Refusal(Code.JOURNAL_UNAVAILABLE, str(error)) from error


def scope_of(subject: Subject, *, consented: tuple[UUID, ...]) -> Scope:
    """All that decides about one unit for this subject, with these units consented to."""
    return Scope(
        grant=subject.grant,
        tenants=subject.tenants,
        jurisdictions=subject.jurisdictions,
        consented_units=consented,
    )


def denied_of(keys: Iterable[Key], registered: Registered, subject: Subject) -> frozenset[Key]:
    """The ids that this subject may not see, by the labels and consents just read."""
    scope = scope_of(subject, consented=registered.consented)
    denied: set[Key] = set()
    for key in keys:
        label = registered.labels.get(key)
        if label is None or not scope.permits(
            unit_id=key[1],
            class_id=label.class_id,
            tenant=label.tenant,
            jurisdiction=label.jurisdiction,
        ):
            denied.add(key)
    return frozenset(denied)


def _refused_by_truth(answer: Answer) -> frozenset[Key]:
    """Units that an index offered and the truth refused without a reason that it knew of."""
    return frozenset(
        ("unit", one.unit_id)
        for one in answer.discrepancies
        if not one.pending and one.layer in INDEX_LAYERS
    )


_WITHHOLD_MS: Final = 2_000
_UNAVAILABLE: Final = {"index_unavailable": Code.INDEX_UNAVAILABLE}
_NOTHING_HERE: Final = frozenset({Code.NOT_FOUND, Code.NOT_DELIVERED})


def _served(found: Round) -> Round:
    """The round itself when its answer is one. Raises: Refusal by retrieval's own status."""
    if found.answer.status != 200:
        raise _refusal(found.answer)
    return found


def _refusal(answer: Answer) -> Refusal:
    if answer.status == 404:
        delivered = answer.code != Code.NOT_DELIVERED
        return Refusal(Code.NOT_FOUND if delivered else Code.NOT_DELIVERED, answer.code)
    return Refusal(_UNAVAILABLE.get(answer.code, Code.RETRIEVAL_UNAVAILABLE), answer.code)


def _check_form(answer: Answer, ask: Ask) -> None:
    """Refuse an answer of another shape than the question's, or under another scope."""
    if fault := misshapen(answer, ask):
        raise Refusal(Code.RETRIEVAL_UNAVAILABLE, fault)
    if stray_citations(answer):
        raise Refusal(Code.RETRIEVAL_UNAVAILABLE, "a citation without its unit")
    for scope in scopes_of(answer):
        if (scope.policy_digest, scope.profiles) != (
            ask.subject.policy_digest,
            ask.subject.profiles,
        ):
            raise Refusal(Code.RETRIEVAL_UNAVAILABLE, "the answer is for another scope")
