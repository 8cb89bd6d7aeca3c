"""What the policy commands share: which folder, which format, and which exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.failure import Exit, Failure, of_policy
from policies.errors import PolicyError
from policies.review.page import Page
from policies.review.reading import Reading
from policies.review.writers import json, markdown, text
from policies.snapshot import DEFAULT_FOLDER


class Verdict(IntEnum):
    """How a policy command ends."""

    OK = 0
    INVALID = 3
    FAILED = 4
    NARROWING = 10
    WIDENING = 20


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    JUNIT = "junit"
    SARIF = "sarif"


Folder = Annotated[
    Path, typer.Option("--folder", metavar="DIR", help="The policy folder; the shipped one.")
]
Overlay = Annotated[
    Path | None, typer.Option("--overlay", metavar="DIR", help="Files that replace its own.")
]
FormatOption = Annotated[Format, typer.Option("--format", help="How to write the report.")]

DEFAULT = DEFAULT_FOLDER


@contextmanager
def told(folder: Path) -> Iterator[None]:
    """Tell every fault of a policy that is refused meanwhile, and end with code 3."""
    try:
        yield
    except PolicyError as error:
        raise of_policy(error, folder) from error


def opened(
    read: Callable[[Path, Path | None], Reading], folder: Path, over: Path | None
) -> Reading:
    """The folder, read. Raises: Failure with every fault, exit code 3."""
    with told(folder):
        return read(folder, over)


def put(
    form: Format,
    page: Page,
    report: object,
    others: dict[Format, Callable[[], str]] | None = None,
) -> None:
    """Write a report to standard output. Raises: Failure for a format that it does not have."""
    writers: dict[Format, Callable[[], str]] = {
        Format.TEXT: lambda: text.write(page),
        Format.MARKDOWN: lambda: markdown.write(page),
        Format.JSON: lambda: json.write(report),
        **(others or {}),
    }
    if form not in writers:
        known = ", ".join(writers)
        raise Failure(Exit.USAGE, "usage", f"there is no `{form}` of this", f"use one of {known}")
    sys.stdout.write(writers[form]())
