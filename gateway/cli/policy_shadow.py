"""``gateway policy shadow``: try a candidate beside the live policy, and read what came of it."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterator
from contextlib import contextmanager
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
    ask,
    made,
    reason_of,
)
from gateway.cli.policy_live import Live, numbers, permitted
from gateway.cli.policy_report import Format, FormatOption, Overlay, Verdict, put
from gateway.cli.station import station
from gateway.shadow import runs
from gateway.shadow.keeping import PERIOD_S
from gateway.shadow.results import NotACandidate, Results, Run
from gateway.shadow.runs import AlreadyRunning
from gateway.surfaces.admin.shadow import SHADOW_PATH, ShadowReply, ShadowRequest
from policies.errors import PolicyError
from policies.faults import Faults
from policies.files import PolicyFiles
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
    overlay: Overlay = None,
    config: ConfigOption = None,
) -> int:
    """Let every gateway of this database compare its decisions with those of a candidate."""
    if not reason.strip():
        raise Failure(Exit.USAGE, "usage", "the reason is empty", "say why, for those who read it")
    try:
        found = contents_of(folder, overlay)
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
        live = runs.live_digest(connection)
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

    With --as or --token-file a running gateway is asked, under that identity and for a reason;
    else the database. With --live it also says how many live units have the states that it opens
    and closes.
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
    found = _asked(options) if who or token_file else _read(config)
    candidate = _reading(found.run.files)
    lives = {
        digest: reading
        for digest, files in found.policies.items()
        if (reading := _kept(files)) is not None
    }
    missing = sorted(digest[:12] for digest in {*found.tallies, found.beside} - {*lives, ""})
    notes = [f"the files of policy {digest} are not at hand" for digest in missing]
    if not found.tallies and found.run.ended_at is None:
        notes.append(
            f"gateways write what they compared every {PERIOD_S:g} s: ask again after some requests"
        )
    counted = live is not Live.NONE and found.beside in lives
    told = report(
        candidate,
        found.tallies,
        lives,
        beside=found.beside,
        numbers=numbers(live, lives[found.beside], candidate, options) if counted else None,
        notes=notes,
    )
    put(form, page(told, head=_head(found.run)), told)
    return Verdict.OK


def _read(config: Path | None) -> Results:
    """As the database tells it to whoever has its secret. Raises: Failure."""
    with station(settings_of(config), POLICY) as connection, _believed():
        found = runs.newest(connection)
    if found is None:
        remedy = "begin with `gateway policy shadow start FOLDER --reason TEXT`"
        raise Failure(Exit.REFUSED, "no_shadow", "no candidate was ever tried", remedy)
    return found


def _asked(options: Options) -> Results:
    """As a running gateway tells it to an operator. Raises: Failure."""
    question = made(ShadowRequest, {"reason": reason_of(options)})
    reply = ask(options, SHADOW_PATH, question, ShadowReply)
    with _believed():
        return reply.results()


@contextmanager
def _believed() -> Iterator[None]:
    try:
        yield
    except NotACandidate as error:
        remedy = "compare the database with a backup; start the candidate anew"
        raise Failure(Exit.POLICY, "candidate_altered", flat(error), remedy) from error


def _reading(files: PolicyFiles) -> Reading:
    try:
        return of_parsed(parse_files(files, Faults()))
    except PolicyError as error:
        raise of_policy(error, Path("candidate")) from error


def _kept(files: PolicyFiles) -> Reading | None:
    """A live policy as a reading; None for one that only another version of this program reads,
    which is then told to be not at hand."""
    try:
        return of_parsed(parse_files(files, Faults()))
    except PolicyError:
        return None


def _head(run: Run) -> tuple[str, ...]:
    until = "running" if run.ended_at is None else f"ended {_time(run.ended_at)}"
    return (
        f"run {run.run}, {until}; started {_time(run.started_at)} by {run.started_by}",
        f"reason: {run.reason}",
    )


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _who() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"
