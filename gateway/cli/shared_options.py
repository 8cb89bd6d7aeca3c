"""Options that several commands share, said once.

A command takes them as one dataclass; on the command line each of its fields is an option of the
command's own. Typer reads signatures, so that is what is written here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import get_type_hints


def sharing(function: Callable[..., None]) -> Callable[..., None]:
    """The same command with the fields of its one dataclass in the place of that parameter.

    Raises: TypeError for a function that has not exactly one.
    """
    hints = get_type_hints(function, include_extras=True)
    groups = [name for name, kind in hints.items() if is_dataclass(kind)]
    if len(groups) != 1:
        raise TypeError(f"`{function.__name__}` takes {len(groups)} groups of options, not one")
    group, kind = groups[0], hints[groups[0]]
    annotations = get_type_hints(kind, include_extras=True)
    options = [
        Parameter(
            one.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if one.default is MISSING else one.default,
            annotation=annotations[one.name],
        )
        for one in fields(kind)
    ]
    own = [
        one.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[one.name])
        for one in signature(function).parameters.values()
        if one.name != group
    ]

    @wraps(function)
    def command(**values: object) -> None:
        said = {one.name: values.pop(one.name) for one in options}
        function(**values, **{group: kind(**said)})

    command.__signature__ = Signature([*own, *options])  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in (*own, *options)}
    return command
