"""The other engines, in an environment of their own (``.venv-bench``): run as a script.

Reads one JSON object a line and answers each with one: ``{"engine", "text"}`` compiles,
``{"engine", "requests"}`` decides, ``{"engine", "repeat"}`` decides the same requests that
often again and says what it cost. Nothing of this project is imported here, and each engine
gets its fastest documented form: compiled once, requests as the mappings that it takes.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module, metadata
from typing import Any

Request = Mapping[str, str]
Decide = Callable[[Request], bool]


def cedarpy(text: str) -> Decide:
    engine = import_module("cedarpy")
    policies = engine.PolicySet.from_str(text)
    nobody = engine.Entities.from_json_str("[]")
    allow = engine.Decision.Allow
    fixed = {"principal": 'U::"u"', "action": 'A::"read"', "resource": 'R::"r"'}

    def decide(request: Request) -> bool:
        asked = {**fixed, "context": request}
        return bool(engine.is_authorized(asked, policies, nobody).decision == allow)

    return decide


def regorus(text: str) -> Decide:
    engine = import_module("regorus").Engine()
    engine.add_policy("units.rego", text)

    def decide(request: Request) -> bool:
        engine.set_input(request)
        return engine.eval_rule("data.gate.allow") is True

    return decide


def common_expression_language(text: str) -> Decide:
    program = import_module("cel").compile(text)
    return lambda request: program.execute(request) is True


ENGINES: Mapping[str, tuple[str, Callable[[str], Decide]]] = {
    "cedarpy": ("cedarpy", cedarpy),
    "regorus": ("celine-regorus", regorus),
    "common-expression-language": ("common-expression-language", common_expression_language),
}
"""Name -> (distribution, what compiles a text)."""


class Worker:
    """What has been compiled and asked so far."""

    def __init__(self) -> None:
        self._decide: dict[str, Decide] = {}
        self._requests: dict[str, list[Request]] = {}

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        name = message["engine"]
        if "text" in message:
            distribution, compile_ = ENGINES[name]
            self._decide[name] = compile_(message["text"])
            return {"distribution": distribution, "version": metadata.version(distribution)}
        if "requests" in message:
            self._requests[name] = message["requests"]
            return {"verdicts": self._verdicts(name)}
        began = time.process_time()
        for _ in range(message["repeat"]):
            self._verdicts(name)
        return {"cpu_us": (time.process_time() - began) * 1e6}

    def _verdicts(self, name: str) -> list[bool]:
        decide = self._decide[name]
        return [decide(request) for request in self._requests[name]]


def main() -> None:
    worker = Worker()
    for line in sys.stdin:
        try:
            answer = worker.answer(json.loads(line))
        except Exception as error:  # noqa: BLE001 - told to the run, which leaves the engine out
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
