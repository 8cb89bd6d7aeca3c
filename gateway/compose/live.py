"""Settings that are read again while serving: prepared first, then taken over in one step.

Theory
    Everything that can fail (authorities of an upstream, a limit of a route that is not there)
    is made before anything is changed, and the change itself is a few assignments between two
    requests. Requests under way end over the connections that they have. What takes long to make
    (a list of revoked tokens) is made in turns, while requests go on; one reading at a time.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from gateway.app import DataPlane
from gateway.authn.revoked import Revoked
from gateway.compose.failure import CannotStart
from gateway.compose.listener import limits_of
from gateway.compose.route_limits import admission_of
from gateway.compose.trust import revoked_anew, strangers
from gateway.compose.upstreams import Upstreams
from gateway.settings import InvalidSettings, Settings
from gateway.settings.live import changes, live, taken_over
from policies.snapshot import Snapshot

if TYPE_CHECKING:
    from gateway.relay.admission import Admission, RateStore

_LOG: Final = logging.getLogger("gateway.settings")


class Samples(Protocol):
    """The recorder, as far as its share of sampled requests is concerned."""

    sample_ratio: float


Apply = Callable[[Settings], Awaitable[object]]


async def reread(read: Callable[[], Settings], apply: Apply) -> bool:
    """Read the settings and apply them; whether they count now. One line of the log at level
    ERROR for every fault, and then everything is as it was. A fault of our own is told with its
    traceback: whoever reads settings must hear of the next ones all the same."""
    try:
        await apply(read())
    except InvalidSettings as error:
        faults: Sequence[object] = error.faults
    except CannotStart as error:
        faults = [error]
    except Exception:  # noqa: BLE001 - told, with its traceback
        _LOG.exception("settings: not taken over")
        return False
    else:
        return True
    for fault in faults:
        _LOG.error("settings: not taken over: %s", fault)
    return False


class Rereading:
    """Reads the settings when asked, never twice at once: asked while at it, it reads once more
    when it has done."""

    def __init__(self, read: Callable[[], Settings], apply: Apply) -> None:
        self._read = read
        self._apply = apply
        self._asked = False
        self._task: asyncio.Task[None] | None = None

    def ask(self) -> None:
        """Read what the file says from now on. To be called on the loop."""
        self._asked = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work(), name="settings")

    async def _work(self) -> None:
        while self._asked:
            self._asked = False
            await reread(self._read, self._apply)


def reread_at_signal(read: Callable[[], Settings], apply: Apply) -> None:
    """Read the settings at every SIGHUP of this process, on its loop."""
    rereading = Rereading(read, apply)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, rereading.ask)


class Live:
    """The parts of a running gateway that other settings may change."""

    def __init__(
        self,
        settings: Settings,
        *,
        plane: DataPlane,
        upstreams: Upstreams,
        samples: Samples,
        rates: RateStore | None = None,
    ) -> None:
        self.settings = settings
        self._rates = rates
        self._plane = plane
        self._upstreams = upstreams
        self._samples = samples

    async def apply(self, new: Settings) -> tuple[str, ...]:
        """Take over what counts without a restart; the keys that do not. To be called on the
        loop, and not again before it has done.

        Raises: CannotStart; then everything is as it was.
        """
        before = self._plane.authenticator.revoked
        revoked = await revoked_anew(taken_over(self.settings, new), before)
        # one step from here on: what is looked at is what is replaced
        changed = changes(self.settings, new)
        settings = taken_over(self.settings, new)
        reached = self._upstreams.prepared(settings.upstreams)
        admission = self._plane.admission
        if settings.route_limits != self.settings.route_limits:
            admission = self._admission(settings)
        limits = limits_of(settings.limits)
        # nothing can fail from here on
        self._upstreams.go_on(reached, self._plane.hop)
        self._plane.limits.take_over(limits)
        self._plane.admit_by(admission)
        self._plane.authenticator.revoke(revoked)
        self._plane.streams.look()
        self._samples.sample_ratio = settings.telemetry.sample_ratio
        self.settings = settings
        if settings.tokens.revoked_file is not None:
            counts = len(revoked.tokens), len(revoked.subjects)
            _LOG.info("settings: %d tokens and %d callers are revoked", *counts)
        tell_strangers(revoked, self._plane.snapshots.current)
        known = self._plane.snapshots.current.upstreams
        for name in sorted(set(reached) - set(known)):
            _LOG.warning("settings: no policy in force has an upstream `%s`", name)
        return _told(changed)

    def _admission(self, settings: Settings) -> Admission | None:
        routes = self._plane.snapshots.current.routes
        return admission_of(settings.route_limits, routes, self._rates)


def tell_strangers(revoked: Revoked, snapshot: Snapshot) -> None:
    """Warn of every issuer that is named with a revocation and that policy does not know."""
    for url in strangers(revoked, snapshot.issuers):
        told = "settings: a revocation names `%s`, which is no issuer of policy: it revokes nothing"
        _LOG.warning(told, url)


def _told(changed: tuple[str, ...]) -> tuple[str, ...]:
    """Log what changed; the keys that wait for a restart."""
    now = [key for key in changed if live(key)]
    later = tuple(key for key in changed if not live(key))
    _LOG.info("settings: taken over: %s", ", ".join(now) or "nothing changed")
    if later:
        _LOG.warning("settings: wait for a restart: %s", ", ".join(later))
    return later
