"""The demo's ports: those of its first start, and never others in silence."""

from __future__ import annotations

from pathlib import Path

from deploy.demo import kept as files
from deploy.demo import overlay
from deploy.demo.kept import Kept
from deploy.demo.ports import IDENTITY, listening
from deploy.demo.servers import listen, port_of
from policies.snapshot import load


class Folder:
    """A demo's folder over several starts, as far as its ports are concerned."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[str] = []

    def start(self, name: str = IDENTITY) -> int:
        """The port that the server had at this start; what was told of it is in ``told``."""
        self.told = []
        kept = files.recall(self.folder)
        with listening(kept, name, self.told.append) as found:
            files.keep(self.folder, kept)
            return port_of(found)


def test_a_port_that_is_free_is_had_again(tmp_path: Path) -> None:
    """So issuers, digest and opaque ids are those of the last start."""
    folder = Folder(tmp_path)
    first = folder.start()
    for _ in range(3):
        assert folder.start() == first
        assert folder.told == []


def test_a_port_that_is_taken_is_told_with_what_changes(tmp_path: Path) -> None:
    """The other one is kept too, and the first is had again as soon as it is free."""
    folder = Folder(tmp_path)
    first = folder.start()
    with listen(first):
        other = folder.start()
        (told,) = folder.told
        assert told.startswith(f"port {first} of `identity` is taken by another program: {other} ")
        assert "policy's digest" in told
        assert folder.start() == other != first
        (told,) = folder.told
        assert "policy's digest" not in told  # nothing changed since the last start
    assert folder.start() == first
    (told,) = folder.told
    assert told.startswith(f"port {first} of `identity` is free again.")
    assert "policy's digest" in told
    assert folder.start() == first
    assert folder.told == []


def test_another_port_of_a_portal_changes_nobody(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    with listen(folder.start("customer-portal")):
        folder.start("customer-portal")
    (told,) = folder.told
    assert "policy's digest" not in told


def test_the_digest_is_that_of_the_identity_providers_port(tmp_path: Path) -> None:
    """What is told of a changed port is so: issuers stand in the policy with it."""
    found = [
        load(overlay=overlay.write(tmp_path / str(at), identity_base=f"http://127.0.0.1:{port}"))
        for at, port in enumerate((40_001, 40_001, 40_002))
    ]
    assert found[0].digest == found[1].digest != found[2].digest


def test_a_folder_from_before_ports_could_move_is_read(tmp_path: Path) -> None:
    """Its ports are the first ones."""
    files.write_private(tmp_path / "kept.json", {"ports": {IDENTITY: 40_001}, "secrets": {}})
    assert files.recall(tmp_path).ports == {IDENTITY: 40_001}
    assert files.recall(tmp_path).instead == Kept().instead == {}
