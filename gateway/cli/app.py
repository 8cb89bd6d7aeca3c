"""The command line as a whole: which commands there are, and how an error ends."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from typing import Final

import typer
from typer._click.exceptions import (  # typer 0.29 carries its own click and re-exports neither
    NoArgsIsHelpError,
    UsageError,
)

from gateway.cli import (
    bearer,
    check,
    consent,
    evaluate,
    events,
    index,
    ingest,
    keys,
    labels,
    metrics,
    openapi,
    overrides,
    policy,
    query,
    selftest,
    serve,
    signals,
    threads,
)
from gateway.cli.failure import Exit, Failure, flat, of_settings, of_start
from gateway.compose.failure import CannotStart
from gateway.settings import InvalidSettings

app: Final = typer.Typer(
    name="gateway",
    help="Policy-as-code access control in front of retrieval.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("serve")(serve.serve)
app.command("check")(check.check)
app.command("ingest")(ingest.ingest)
app.command("query")(query.query)
app.command("token")(bearer.token)
app.command("selftest")(selftest.selftest)
app.command("openapi")(openapi.openapi)
app.command("eval")(evaluate.evaluate)
app.add_typer(policy.app, name="policy")
app.add_typer(consent.app, name="consent")
app.add_typer(labels.app, name="labels")
app.add_typer(threads.app, name="threads")
app.add_typer(overrides.app, name="overrides")
app.add_typer(events.app, name="events")
app.add_typer(index.app, name="index")
app.command("metrics")(metrics.metrics)
app.add_typer(signals.app, name="signals")
app.add_typer(keys.app, name="keys")


def main() -> None:
    """Run the command line of this process and exit with its code."""
    code = run(sys.argv[1:])
    gc.freeze()  # what a command loaded late ends with the process: nobody need walk it first
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """The exit code of one command line; errors are printed, never raised."""
    try:
        result = app(arguments, prog_name="gateway", standalone_mode=False)
    except Failure as failure:
        return _fail(failure)
    except InvalidSettings as error:
        return _fail(of_settings(error))
    except CannotStart as error:
        return _fail(of_start(error))
    except NoArgsIsHelpError as error:
        print(error.format_message())
        return Exit.USAGE
    except UsageError as error:
        return _fail(
            Failure(Exit.USAGE, "usage", flat(error.format_message()).rstrip("."), _help(error))
        )
    except (KeyboardInterrupt, typer.Abort):
        return Exit.INTERRUPTED
    except BrokenPipeError:  # `gateway events | head`: the reader has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except Exception as error:  # noqa: BLE001 - the last line: a defect must still end clearly
        return _fail(_defect(error))
    return result if isinstance(result, int) else Exit.OK


def _help(error: UsageError) -> str:
    path = error.ctx.command_path if error.ctx is not None else "gateway"
    return f"see `{path} --help`"


def _defect(error: Exception) -> Failure:
    if os.environ.get("GATEWAY_TRACEBACK"):
        traceback.print_exception(error)
    reason = flat(f"{type(error).__name__}: {error}")
    return Failure(Exit.INTERNAL, "internal", reason, "this is a defect: set GATEWAY_TRACEBACK=1")


def _fail(failure: Failure) -> int:
    for text in failure.lines:
        print(f"gateway: error: {text}", file=sys.stderr)
    return failure.exit_code
