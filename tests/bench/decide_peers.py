"""The worker process with the other engines, as the run sees it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from policies.rows import Row
from tests.bench.decide_languages import COLUMNS, LANGUAGES

_ROOT: Final = Path(__file__).resolve().parents[2]
PYTHON: Final = _ROOT / ".venv-bench/bin/python"
"""Made by ``make bench``: the other engines are no dependency of this project."""


class PeerFailed(Exception):
    """An engine could not take the rules or a request."""


class Peers:
    """The engines of one worker. Each is given the rules, asked once, then measured."""

    def __init__(self, worker: subprocess.Popen[str]) -> None:
        self._worker = worker
        self._asked = 1
        self.versions: dict[str, str] = {}

    def verdicts(
        self, engine: str, rows: Sequence[Row], requests: Sequence[Sequence[str]]
    ) -> Sequence[bool]:
        """What the engine says of each request, compiled from the rows. Raises PeerFailed."""
        made = self._ask(engine=engine, text=LANGUAGES[engine](rows))
        self.versions[engine] = f"{made['distribution']} {made['version']}"
        self._asked = len(requests)
        asked = [dict(zip(COLUMNS, words, strict=True)) for words in requests]
        verdicts: list[bool] = self._ask(engine=engine, requests=asked)["verdicts"]
        return verdicts

    def micros(self, engine: str, repeat: int) -> float:
        """Processor time per request, in us, over all requests that often. Raises PeerFailed."""
        spent: float = self._ask(engine=engine, repeat=repeat)["cpu_us"]
        return spent / repeat / self._asked

    def _ask(self, **message: object) -> Mapping[str, Any]:
        sent, received = self._worker.stdin, self._worker.stdout
        if sent is None or received is None:
            raise PeerFailed("the worker has no pipes")
        sent.write(json.dumps(message) + "\n")
        sent.flush()
        line = received.readline()
        if not line:
            raise PeerFailed("the worker ended")
        answer: Mapping[str, Any] = json.loads(line)
        if "failed" in answer:
            raise PeerFailed(answer["failed"])
        return answer


@contextmanager
def peers() -> Iterator[Peers | None]:
    """The worker for as long as it is asked; None where its environment was never made."""
    if not PYTHON.exists():
        yield None
        return
    script = Path(__file__).with_name("decide_worker.py")
    with subprocess.Popen(
        [PYTHON, "-I", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        yield Peers(worker)  # leaving closes its input, at which it ends
