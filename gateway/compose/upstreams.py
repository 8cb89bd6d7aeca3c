"""Upstreams from settings: where they are, and over what they are reached."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from gateway.compose.failure import CannotStart, first_line
from gateway.relay.address import Address
from gateway.relay.balance import Balance
from gateway.relay.dial import context_of
from gateway.relay.fleet import Client, Fleet
from gateway.relay.health import HealthCheck
from gateway.relay.hop import Hop, Target
from gateway.relay.upstream import UpstreamTimes, UpstreamTransport
from gateway.settings.model import UpstreamSettings

_LOOK_S: Final = 0.5
Mark = tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class Reached:
    """One upstream as it is reached now, and what it was made from."""

    settings: UpstreamSettings
    authorities: Mark
    fleet: Fleet
    target: Target
    """One for as long as nothing changes: what is remembered of an upstream goes with it."""


class Upstreams:
    """Every upstream that has an address, and those that are let go until they are idle."""

    def __init__(
        self,
        settings: Mapping[str, UpstreamSettings],
        known: Collection[str],
        *,
        known_only: bool = True,
    ) -> None:
        """A variable of the environment cannot hold a hyphen: `customer_portal` is
        `customer-portal` where the policy has that one.

        Raises: CannotStart when an upstream's authorities or its client cannot be used, and for
        ``known_only`` when the policy has neither name.
        """
        by_variable = {name.replace("-", "_"): name for name in known}
        self.reached: dict[str, Reached] = {}
        for name, one in settings.items():
            ours = name if name in known else by_variable.get(name)
            if ours is None and known_only:
                reason = f"the policy has no upstream `{name}`, so no route would use its address"
                raise CannotStart(
                    "unknown_upstream", reason, f"known are {', '.join(sorted(known))}"
                )
            self.reached[ours or name] = _reached(one)
        self._names = by_variable
        self._leaving: dict[asyncio.Task[None], tuple[UpstreamTransport, ...]] = {}

    @property
    def targets(self) -> dict[str, Target]:
        return {name: one.target for name, one in self.reached.items()}

    def prepared(self, settings: Mapping[str, UpstreamSettings]) -> dict[str, Reached]:
        """What is reached under other settings; unchanged ones keep their connections.

        A name that no policy has yet is taken as it is: a policy may come to have it.

        Raises: CannotStart.
        """
        found: dict[str, Reached] = {}
        for name, one in settings.items():
            ours = self._names.get(name, name)
            before = self.reached.get(ours)
            same = before is not None and (before.settings, before.authorities) == (
                one,
                _mark(one.ca_file),
            )
            found[ours] = before if before is not None and same else _reached(one)
        return found

    def go_on(self, reached: dict[str, Reached], hop: Hop) -> None:
        """Reach upstreams like this from now on. Transports that are not used any more are
        closed when the last exchange over them has ended."""
        before, self.reached = self.reached, reached
        changed = {name for name, one in before.items() if reached.get(name) is not one}
        left = hop.retarget(self.targets, changed)
        for name in changed:
            transports = tuple(left.get(name, ()))
            task = asyncio.get_running_loop().create_task(_let_go(before[name].fleet, transports))
            self._leaving[task] = transports
            task.add_done_callback(lambda ended: self._leaving.pop(ended, None))

    async def aclose(self) -> None:
        """Cut what is still being let go."""
        leaving = dict(self._leaving)
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        for transports in leaving.values():
            for one in transports:
                await one.aclose()


def targets(upstreams: Mapping[str, UpstreamSettings], known: Collection[str]) -> dict[str, Target]:
    """Where each upstream of the policy is reached, by the policy's name for it.

    Raises: CannotStart, see ``Upstreams``.
    """
    return Upstreams(upstreams, known).targets


def fleet_of(upstream: UpstreamSettings) -> Fleet:
    """The processes of one upstream. Raises: CannotStart."""
    if upstream.client == "aiohttp" and importlib.util.find_spec("aiohttp") is None:
        raise CannotStart(
            "client_missing",
            "an upstream asks for the client `aiohttp`, which is not installed",
            'install it in the clone by `.venv/bin/pip install -e ".[aiohttp]"`, or leave `client`'
            " out",
        )
    addresses = [_address(one, upstream) for one in upstream.addresses]
    try:
        context_of(addresses[0])  # now, not at a first request
    except OSError as error:
        reason = f"the authorities in `{upstream.ca_file}` cannot be used ({first_line(error)})"
        remedy = "name a PEM file of certificates as `ca_file` of the upstream"
        raise CannotStart("ca_unusable", reason, remedy) from error
    return Fleet(
        addresses=addresses,
        times=UpstreamTimes(
            connect_s=upstream.connect_ms / 1_000,
            first_byte_s=upstream.first_byte_ms / 1_000,
            idle_s=upstream.idle_ms / 1_000,
            write_s=upstream.write_ms / 1_000,
            total_s=upstream.total_ms / 1_000,
        ),
        connections_max=upstream.connections_max,
        sockets_max=upstream.sockets_max,
        balance=Balance(upstream.balance),
        client=Client(upstream.client),
        failures_max=upstream.breaker_failures,
        open_s=upstream.breaker_open_ms / 1_000,
        check=_check(upstream, addresses[0].authority),
    )


def _address(origin: str, upstream: UpstreamSettings) -> Address:
    parts = urlsplit(origin)
    tls = parts.scheme == "https"
    return Address(
        host=parts.hostname or "",
        port=parts.port or (443 if tls else 80),
        tls=tls,
        ca_file=str(upstream.ca_file or ""),
    )


def _check(upstream: UpstreamSettings, host: bytes) -> HealthCheck | None:
    health = upstream.health
    if health is None:
        return None
    return HealthCheck(
        path=health.path,
        host=host,
        interval_s=health.interval_ms / 1_000,
        timeout_s=health.timeout_ms / 1_000,
        failures=health.failures,
        passes=health.passes,
    )


def _reached(settings: UpstreamSettings) -> Reached:
    fleet = fleet_of(settings)
    target = Target(
        fleet.addresses[0].authority,
        fleet.transport,
        fleet.socket,
        signs_each=settings.assertion == "each",
    )
    return Reached(settings, _mark(settings.ca_file), fleet, target)


def _mark(path: Path | None) -> Mark:
    """What changes with a file's content; None without one."""
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_ino, found.st_size)


async def _let_go(fleet: Fleet, transports: tuple[UpstreamTransport, ...]) -> None:
    while any(backend.under_way for backend in fleet.backends):  # noqa: ASYNC110 - see below
        await asyncio.sleep(_LOOK_S)  # a count that every exchange changes tells nobody
    for one in transports:
        await one.aclose()
