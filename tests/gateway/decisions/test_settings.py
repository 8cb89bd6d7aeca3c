"""The log's settings: a path that hides nothing is refused at the start, with the nearest one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.compose.failure import CannotStart
from gateway.compose.telemetry import opened_telemetry
from gateway.decisions.fields import CONTAINERS, FIELDS, REDACTABLE
from gateway.settings import InvalidSettings, Settings, load


def given(folder: Path, text: str, env: dict[str, str] | None = None) -> Settings:
    path = folder / "gateway.toml"
    path.write_text(text, encoding="utf-8")
    return load(path, env or {})


def test_every_documented_path_can_be_masked_and_dropped(tmp_path: Path) -> None:
    paths = str([*REDACTABLE, *CONTAINERS])
    settings = given(tmp_path, f"[decision_log]\nmask = {paths}\ndrop = {paths}\n")
    assert settings.decision_log.mask == [*REDACTABLE, *CONTAINERS]


@pytest.mark.parametrize("key", ["mask", "drop"])
@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("claim", "`claims`"),
        ("Claims", "`claims`"),
        ("units.deny", "`units.denied`"),
        ("class_id", "`classes.class_id`"),
        ("/issuer", "`issuer`"),
        ("subject", "nearest"),
        ("", "nearest"),
    ],
)
def test_an_unknown_path_is_refused_with_the_nearest_known(
    tmp_path: Path, key: str, path: str, nearest: str
) -> None:
    """A slip of the pen would leave in every record what it was meant to hide."""
    with pytest.raises(InvalidSettings) as caught:
        given(tmp_path, f'[decision_log]\n{key} = ["issuer", "{path}"]\n')
    (fault,) = caught.value.faults
    assert fault.place.endswith(f"decision_log.{key}.1")
    assert f"`{path}` is no field" in fault.reason
    assert nearest in fault.reason


@pytest.mark.parametrize("field", [one.path for one in FIELDS if one.fixed])
def test_what_a_reader_needs_cannot_be_hidden(tmp_path: Path, field: str) -> None:
    with pytest.raises(InvalidSettings, match="stands in every record"):
        given(tmp_path, f'[decision_log]\ndrop = ["{field}"]\n')


def test_a_collector_is_needed_to_send_to_one(tmp_path: Path) -> None:
    """Otherwise the records would silently go nowhere."""
    with pytest.raises(InvalidSettings, match=r"needs `telemetry\.otlp_endpoint`"):
        given(tmp_path, "[decision_log]\notlp = true\n")
    text = '[decision_log]\notlp = true\n[telemetry]\notlp_endpoint = "http://127.0.0.1:4318"\n'
    assert given(tmp_path, text).decision_log.wanted


def test_the_example_of_the_readme_is_accepted(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "gateway" / "README.md").read_text()
    (example,) = re.findall(r"```toml\n(\[decision_log\].*?)```", page, re.DOTALL)
    (tmp_path / "mask-key").write_text("k")
    log = given(tmp_path, example).decision_log
    assert log.wanted
    assert log.mask_key is not None
    assert log.mask
    assert log.drop


def test_the_key_is_a_secret_and_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("s3cret-key\n")
    settings = given(tmp_path, '[decision_log]\nmask_key_file = "key"\nfile = "d.jsonl"\n')
    assert settings.decision_log.mask_key is not None
    assert settings.decision_log.mask_key.get_secret_value() == "s3cret-key"
    assert settings.decision_log.file == tmp_path / "d.jsonl"
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize("line", ["sample_ratio = 1.1", "rate_max = 0", "queue_max = 0", "x = 1"])
def test_bounds_and_names_are_checked(tmp_path: Path, line: str) -> None:
    with pytest.raises(InvalidSettings):
        given(tmp_path, f"[decision_log]\n{line}\n")


def test_a_file_that_cannot_be_written_ends_the_start_with_a_code(tmp_path: Path) -> None:
    """One line with a remedy, as for any other setting; nothing runs without its log."""
    settings = given(tmp_path, f'[decision_log]\nfile = "{tmp_path}"\n')
    with pytest.raises(CannotStart) as caught:
        opened_telemetry(settings)
    assert caught.value.code == "log_unusable"
    assert str(tmp_path) in caught.value.reason
    assert "decision_log.file" in caught.value.remedy
