"""``gateway policy matrix`` and ``compile``: the whole policy, for people and for stores."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.failure import Exit, Failure, flat
from gateway.cli.policy_report import DEFAULT, Folder, Overlay, Verdict, opened
from policies.emit import json as document_form
from policies.emit import script
from policies.review.handbook import NoMarks, inserted
from policies.review.matrix import Matrix, page
from policies.review.matrix import matrix as matrix_of
from policies.review.matrix_svg import picture
from policies.review.reading import read
from policies.review.writers import json as json_writer
from policies.review.writers import markdown, text


class Shown(StrEnum):
    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"
    SVG = "svg"


class Emitted(StrEnum):
    SQL = "sql"
    RLS = "rls"
    QDRANT = "qdrant"
    JSON = "json"


Words = Annotated[list[str] | None, typer.Option(metavar="WORD", help="The caller's, for qdrant.")]


def matrix(
    form: Annotated[Shown, typer.Option("--format", help="How to show it.")] = Shown.TEXT,
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="FILE", help="Put it between the marks of a handbook."),
    ] = None,
    folder: Folder = DEFAULT,
    overlay: Overlay = None,
) -> int:
    """Show the whole policy as tables, or as one picture."""
    report = matrix_of(opened(read, folder, overlay))
    if into is not None:
        return _insert(into, report)
    writers = {
        Shown.TEXT: lambda: text.write(page(report)),
        Shown.MARKDOWN: lambda: markdown.write(page(report)),
        Shown.JSON: lambda: json_writer.write(page(report)),
        Shown.SVG: lambda: picture(report),
    }
    sys.stdout.write(writers[form]())
    return Verdict.OK


def _insert(into: Path, report: Matrix) -> int:
    try:
        text_after = inserted(into.read_text(encoding="utf-8"), report)
        into.write_text(text_after, encoding="utf-8")
    except NoMarks as error:
        raise Failure(
            Exit.USAGE, "no_marks", flat(error), "add them where it shall stand"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = f"`{into}` cannot be read and written ({flat(error)})"
        raise Failure(Exit.USAGE, "unwritable", reason, "name another file") from error
    return Verdict.OK


def compile_(
    emit: Annotated[Emitted, typer.Option("--emit", help="For which reader.")],
    tenant: Words = None,
    jurisdiction: Words = None,
    folder: Folder = DEFAULT,
    overlay: Overlay = None,
) -> int:
    """Write the policy in the form that a store is asked in."""
    snapshot = opened(read, folder, overlay).snapshot
    writers = {
        Emitted.SQL: lambda: script.sql(snapshot),
        Emitted.RLS: lambda: script.rls(snapshot),
        Emitted.QDRANT: lambda: _json(
            script.filters(snapshot, tuple(tenant or ()), tuple(jurisdiction or ()))
        ),
        Emitted.JSON: lambda: _json(document_form.document(snapshot)),
    }
    sys.stdout.write(writers[emit]())
    return Verdict.OK


def _json(document: object) -> str:
    return json.dumps(document, ensure_ascii=True) + "\n"
