"""A job done: a release accepted, compiled and proven, and its snapshot written out in parts.

Runs in a child of the forge and nowhere else; it may take half a minute.
"""

from __future__ import annotations

import time
from typing import BinaryIO, Final

from gateway.reload.frames import Frame, framed, opened, sealed
from gateway.reload.job import Built, Job
from policies import congruence, oracle, soundness
from policies.errors import PolicyError
from policies.portable import parts_of
from policies.release import Artefact, ReleaseRefused, accept
from policies.snapshot import Snapshot, compiled

_CODES: Final = {
    "InvalidPolicy": "policy_invalid",
    "IncongruentPolicy": "policy_incongruent",
    "WrongCasbin": "wrong_casbin",
}


def build(job: Job) -> tuple[Snapshot, Built]:
    """A release as a proven snapshot. Raises PolicyError. Cost: see ``Built``."""
    began, spent = time.perf_counter(), time.process_time()
    bases = {base.generation: base for base in job.bases}

    def fetch(generation: int) -> Artefact | None:
        base = bases.get(generation)
        return None if base is None else base.artefact()

    parsed = accept(
        job.release.artefact(),
        job.trust.anchor(),
        newer_than=job.newer_than,
        fetch=fetch,
        accepted=job.accepted,
    )
    accepted = time.perf_counter()
    oracle.check_distribution()
    snapshot, sets = compiled(parsed)
    soundness.check(parsed, snapshot.table)
    made = time.perf_counter()
    asked = congruence.check(parsed.vocabulary, snapshot.table, sets, parsed.domains)
    proven = time.perf_counter()
    cpu_s = time.process_time() - spent  # of a child: what its parent used counts elsewhere
    return snapshot, Built(accepted - began, made - accepted, proven - made, asked, cpu_s)


def answer(content: bytes, out: BinaryIO) -> None:
    """Build one job and write all of its frames."""
    try:
        snapshot, built = build(opened(content))
    except PolicyError as error:
        code = error.code if isinstance(error, ReleaseRefused) else _code(error)
        out.write(framed(Frame.REFUSED, sealed((code, str(error)[:2_000]))))
    except Exception as error:  # noqa: BLE001 - mapped to a refusal: the last good policy stays
        out.write(framed(Frame.REFUSED, sealed(("build_failed", type(error).__name__))))
    else:
        out.writelines(framed(Frame.PART, part) for part in parts_of(snapshot))
        out.write(framed(Frame.DONE, sealed(built)))


def _code(error: PolicyError) -> str:
    return _CODES.get(type(error).__name__, "policy_refused")
