"""``gateway policy shadow``: try a candidate beside the live policy, and read what came of it."""

from __future__ import annotations

import getpass
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from gateway.cli.check import ConfigOption, settings_of
from gateway.cli.failure import Exit, Failure, flat, of_policy
from gateway.cli.operator import (
    AdminOption,
    IdentitiesOption,
    Options,
    ReasonOption,
    TokenOption,
    WhoOption,
)
from gateway.cli.policy_live import Live, numbers, permitted
from gateway.cli.policy_report import Format, FormatOption, Verdict, put
from gateway.cli.station import Connection, station
from gateway.shadow import runs
from gateway.shadow.runs import AlreadyRunning, NotACandidate, Run
from policies.errors import PolicyError
from policies.faults import Faults
from policies.files import PolicyFiles, digest_of
from policies.loader import parse_files
from policies.release.artefact import contents_of
from policies.review.reading import Reading, of_parsed
from policies.shadow.page import page
from policies.shadow.report import report
from policies.shadow.tally import SAMPLES_MAX
from policies.snapshot import proven

SAMPLES: Final = 5
POLICY: Final = "gw_policy"

app: Final = typer.Typer(
    help="A candidate beside the live policy: where would it decide otherwise?",
    no_args_is_help=True,
)


@app.command("start")
def start(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The candidate's folder.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is kept.")],
    sample: Annotated[
        int,
        typer.Option(
            "--sample", min=0, max=SAMPLES_MAX, help="Requests kept as examples, of each kind."
        ),
    ] = SAMPLES,
    config: ConfigOption = None,
) -> int:
    """Let every gateway of this database compare its decisions with those of a candidate."""
    if not reason.strip():
        raise Failure(Exit.USAGE, "usage", "the reason is empty", "say why, for those who read it")
    try:
        found = contents_of(folder)
        proven(parse_files(found, Faults()))
    except PolicyError as error:
        raise of_policy(error, folder) from error
    with station(settings_of(config), POLICY) as connection:
        try:
            run = runs.begin(
                connection,
                files=found,
                sample=sample,
                started_by=_who(),
                reason=reason.strip(),
            )
        except AlreadyRunning as error:
            remedy = "end it with `gateway policy shadow stop` first"
            raise Failure(Exit.REFUSED, "shadow_running", flat(error), remedy) from error
        live = _live_digest(connection)
    print(f"run {run}: candidate {found.digest[:12]} beside {live[:12] or 'no live policy yet'}")
    print("answers stay as they are; read the differences with `gateway policy shadow show`")
    return Verdict.OK


@app.command("stop")
def stop(config: ConfigOption = None) -> int:
    """End the run; what was counted stays readable."""
    with station(settings_of(config), POLICY) as connection:
        ended = runs.end(connection, ended_by=_who())
    if ended is None:
        print("no candidate is running")
    else:
        print(f"run {ended[0]} of candidate {ended[1][:12]} has ended")
    return Verdict.OK


@app.command("show")
def show(
    form: FormatOption = Format.TEXT,
    live: Annotated[
        Live, typer.Option("--live", help="Ask a running gateway how much is live of it.")
    ] = Live.NONE,
    reason: ReasonOption = None,
    who: WhoOption = None,
    token_file: TokenOption = None,
    identities: IdentitiesOption = None,
    admin: AdminOption = None,
    config: ConfigOption = None,
) -> int:
    """Tell where the newest candidate disagreed: by rule, profile and direction.

    With --live it also says how many live units have the states that it opens and closes.
    """
    options = Options(
        reason=reason,
        who=who,
        token_file=token_file,
        identities=identities,
        admin=admin,
        config=config,
        command="policy shadow show",
    )
    permitted(live, options)
    with station(settings_of(config), POLICY) as connection:
        try:
            run = runs.newest(connection)
        except NotACandidate as error:
            remedy = "compare the database with a backup; start the candidate anew"
            raise Failure(Exit.POLICY, "candidate_altered", flat(error), remedy) from error
        if run is None:
            remedy = "begin with `gateway policy shadow start FOLDER --reason TEXT`"
            raise Failure(Exit.REFUSED, "no_shadow", "no candidate was ever tried", remedy)
        tallies = runs.counted(connection, run.run)
        beside = _live_digest(connection)
        lives = _lives(connection, {*tallies, beside})
    candidate = _candidate(run)
    missing = sorted(digest[:12] for digest in {*tallies, beside} - {*lives, ""})
    notes = [f"the files of policy {digest} are not at hand" for digest in missing]
    asked = live is not Live.NONE and beside in lives
    told = report(
        candidate,
        tallies,
        lives,
        beside=beside,
        numbers=numbers(live, lives[beside], candidate, options) if asked else None,
        notes=notes,
    )
    put(form, page(told, head=_head(run)), told)
    return Verdict.OK


def _candidate(run: Run) -> Reading:
    try:
        return of_parsed(parse_files(run.files, Faults()))
    except PolicyError as error:
        raise of_policy(error, Path(f"run {run.run}")) from error


def _head(run: Run) -> tuple[str, ...]:
    until = "running" if run.ended_at is None else f"ended {_time(run.ended_at)}"
    return (
        f"run {run.run}, {until}; started {_time(run.started_at)} by {run.started_by}",
        f"reason: {run.reason}",
    )


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _live_digest(connection: Connection) -> str:
    row = connection.execute("select digest from gate.active_revision").fetchone()
    return str(row[0]) if row is not None else ""


def _lives(connection: Connection, digests: set[str]) -> dict[str, Reading]:
    """The live policies that the database has kept as releases, as far as they can be read."""
    found: dict[str, Reading] = {}
    for digest, texts in connection.execute(
        "select distinct on (digest) digest, files from gate.policy_release"
        " where digest = any(%s) order by digest, generation desc",
        [sorted(digests)],
    ):
        contents = {path: text.encode() for path, text in texts.items()}
        # all as from an overlay: whether its issuers may be served is not asked here
        files = PolicyFiles(contents, digest_of(contents), frozenset(contents))
        if files.digest == digest:
            with suppress(PolicyError):  # of another version of this program: `not at hand`
                found[digest] = of_parsed(parse_files(files, Faults()))
    return found


def _who() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"
