"""A request may ask for less than its caller has; asking for more gets nothing more."""

from __future__ import annotations

import httpx

from deploy.demo.claims import QUESTION, Tour, normalised
from deploy.demo.expected import allowed
from deploy.demo.voice import addresses


async def only_narrower(tour: Tour) -> None:
    """``audience`` and ``task_scope`` select among what verified claims already permit."""
    narrowed = await tour.voice.ask("employee", QUESTION, audience="customer")
    tour.check(
        narrowed.status_code == 200 and addresses(narrowed) <= _of_all_tenants(tour),
        "an employee who asks for the customer's view gets no more than that",
        narrowed.text,
    )
    own = await tour.voice.ask("customer", QUESTION)
    widened = await tour.voice.ask("customer", QUESTION, audience="employee")
    tour.check(
        widened.status_code == 200 and addresses(widened) == addresses(own),
        "a customer who asks for the employee's view gets its own",
        widened.text,
    )
    unknown = await tour.voice.ask("customer", QUESTION, audience="director")
    tour.check(
        _code(unknown) == (403, "audience_refused"),
        "an audience that the policy does not have is refused",
        normalised(unknown),
    )
    other_task = await tour.voice.ask("agent-assistant", QUESTION, task_scope="incident_response")
    tour.check(
        _code(other_task) == (403, "task_scope_refused"),
        "an agent cannot choose a task that its token does not carry",
        normalised(other_task),
    )
    several = await tour.voice.ask("agent-assistant", QUESTION)
    tour.check(
        _code(several) == (403, "task_scope_required"),
        "an agent with two tasks must say which one it is at",
        normalised(several),
    )
    nobody = await tour.voice.ask("contractor", QUESTION)
    tour.check(
        _code(nobody) == (403, "no_audience"),
        "a caller whom a row of the policy denies has no audience at all",
        normalised(nobody),
    )


def _of_all_tenants(tour: Tour) -> frozenset[str]:
    """What customers of any tenant may read: the employee serves both."""
    return allowed("customer", tour.corpus) | allowed("globex-customer", tour.corpus)


def _code(answer: httpx.Response) -> tuple[int, str]:
    status, body, _ = normalised(answer)
    return status, str(body.get("code", ""))
