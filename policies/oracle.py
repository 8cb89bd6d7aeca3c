"""Casbin as the oracle: the one module that imports it.

Laws
    * A new enforcer per revision and never a change to a live one.
    * Plain ``Enforcer`` only; no adapters, watchers, pattern functions, ``eval`` or roles. What
      it parses of the matcher is kept from one question to the next; it would parse the same
      text again for each, which is most of the time that a question takes.
    * Rows go in one by one as parsed, and are counted afterwards.
    * Any exception is the caller's reason to refuse the policy.

It is asked at load, for proof, and never per request: a question costs 25 us with one row and
some 3 us more for each further one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from importlib import metadata
from typing import Any, Final

import casbin
from casbin.effect.default_effectors import AllowAndDenyEffector, AllowOverrideEffector

from policies.errors import IncongruentPolicy, WrongCasbin
from policies.kinds import Shape
from policies.rows import Row

_IMPOSTORS: Final = ("casbin", "asynccasbin")
_SEPARATOR: Final = "|"
_PARSED_MAX: Final = 64


def check_distribution() -> None:
    """Raises WrongCasbin unless ``pycasbin`` alone owns the module name ``casbin``.

    The older distributions install the same folder over it, and no tool reports the clash.
    """
    for name in _IMPOSTORS:
        if _installed(name):
            raise WrongCasbin(
                f"distribution `{name}` is installed beside `pycasbin` and overwrites it; "
                f"uninstall both, then install `pycasbin` again"
            )
    if not _installed("pycasbin"):
        raise WrongCasbin("distribution `pycasbin` is not installed; install it")


def _installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def meets(request: str, cell: str) -> bool:
    """Whether two ``|``-joined sets have an exact member in common. Empty text is in no set."""
    if _SEPARATOR not in request:
        return request != "" and request in cell.split(_SEPARATOR)
    words = set(request.split(_SEPARATOR)) & set(cell.split(_SEPARATOR))
    return bool(words - {""})


class _Parsed(threading.local):
    """A parsed matcher holds the names of the question under way, so no two threads share one."""

    def __init__(self) -> None:
        self.kept: dict[tuple[object, ...], Any] = {}


_PARSED: Final = _Parsed()


class _Enforcer(casbin.Enforcer):  # type: ignore[misc]
    """Casbin's own, but that the same matcher over the same functions is parsed once a thread."""

    def _get_expression(self, expr: str, functions: dict[str, Any] | None = None) -> Any:
        kept = _PARSED.kept
        key = (expr, *(functions or {}).items())
        if (parsed := kept.get(key)) is None:
            if len(kept) >= _PARSED_MAX:
                kept.clear()
            parsed = kept[key] = super()._get_expression(expr, functions)
        return parsed


class Oracle:
    """One decision kind under Casbin."""

    def __init__(self, shape: Shape, rows: Sequence[Row]) -> None:
        enforcer = _Enforcer(_Enforcer.new_model(text=shape.model_text))
        enforcer.enable_auto_save(False)
        enforcer.add_function("meets", meets)
        for row in rows:
            cells = [_SEPARATOR.join(sorted(cell)) for cell in row.cells]
            enforcer.model.add_policy("p", "p", [row.id, *cells, row.effect.value])
        loaded = len(enforcer.get_policy())
        if loaded != len(rows):
            raise IncongruentPolicy(f"Casbin loaded {loaded} of {len(rows)} rows of {shape.file}")
        if not isinstance(enforcer.eft, AllowAndDenyEffector) or not enforcer.enabled:
            raise IncongruentPolicy(f"Casbin runs {shape.file} under another effect")
        self._enforcer = enforcer

    def allows(self, *request: str | Iterable[str]) -> bool:
        """Casbin's verdict on one request; several words in one position are joined."""
        words = [
            part if isinstance(part, str) else _SEPARATOR.join(sorted(part)) for part in request
        ]
        try:
            verdict = self._enforcer.enforce(*words)
        except Exception as error:
            raise IncongruentPolicy(f"Casbin failed on a question: {error}") from error
        if verdict is not True and verdict is not False:
            raise IncongruentPolicy(f"Casbin answered {verdict!r}")
        return verdict


class ForeignOracle:
    """A model that somebody brought, as ``policies.foreign_text`` wrote it anew, under Casbin."""

    def __init__(self, model_text: str, rows: Sequence[tuple[str, Sequence[str]]]) -> None:
        """``rows`` are (``p``, ``g`` or ``g2``, words). Raises IncongruentPolicy."""
        try:
            enforcer = casbin.Enforcer(casbin.Enforcer.new_model(text=model_text))
            enforcer.enable_auto_save(False)
            for sort, words in rows:
                enforcer.model.add_policy(sort[0], sort, list(words))
            enforcer.build_role_links()
        except Exception as error:
            raise IncongruentPolicy(f"Casbin does not take the model: {error}") from error
        sections = (
            enforcer.model.model[section]
            for section in ("p", "g")
            if section in enforcer.model.model
        )
        loaded = sum(len(assertion.policy) for part in sections for assertion in part.values())
        if loaded != len(rows):
            raise IncongruentPolicy(f"Casbin loaded {loaded} of {len(rows)} rows")
        if not isinstance(enforcer.eft, AllowAndDenyEffector | AllowOverrideEffector):
            raise IncongruentPolicy("Casbin runs the model under another effect")
        self._enforcer = enforcer

    def allows(self, *request: str) -> bool:
        """Casbin's verdict on one request of single words."""
        try:
            verdict = self._enforcer.enforce(*request)
        except Exception as error:
            raise IncongruentPolicy(f"Casbin failed on a question: {error}") from error
        if verdict is not True and verdict is not False:
            raise IncongruentPolicy(f"Casbin answered {verdict!r}")
        return verdict
