"""One TOML file and the environment: strict, complete in its complaints, silent on secrets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.settings import ENVIRONMENT, InvalidSettings, Listen, Settings, load

DATABASE = {
    "GATEWAY_DATABASE_URL": "postgresql://db.internal/gw",
    "GATEWAY_DATABASE_SECRET": "hunter2-secret",
}


def write(folder: Path, text: str) -> Path:
    path = folder / "gateway.toml"
    path.write_text(text, encoding="utf-8")
    return path


def faults(path: Path | None, env: dict[str, str] | None = None) -> dict[str, str]:
    """Place (without the file's name) -> code of every fault."""
    with pytest.raises(InvalidSettings) as caught:
        load(path, env or {})
    for fault in caught.value.faults:
        assert fault.reason
        assert fault.remedy
        assert "\n" not in str(fault)
    return {fault.place.rpartition(": ")[2]: fault.code for fault in caught.value.faults}


def test_nothing_given_means_embedded_on_loopback() -> None:
    """`make demo` on a fresh machine: no file, no variable."""
    settings = load(None, {})
    assert settings.database.url is None
    assert settings.qdrant.url is None
    assert settings.listen.public == Listen("127.0.0.1", 8080)


def test_environment_wins_over_the_file(tmp_path: Path) -> None:
    """The order is environment, file, default."""
    path = write(tmp_path, '[listen]\npublic = "127.0.0.1:1"\nadmin = "127.0.0.1:2"\n')
    settings = load(path, {"GATEWAY_LISTEN": "[::1]:0", "GATEWAY_ADMIN_LISTEN": ""})
    assert str(settings.listen.public) == "[::1]:0"
    assert str(settings.listen.admin) == "127.0.0.1:2"


def test_file_is_found_by_its_variable(tmp_path: Path) -> None:
    """GATEWAY_CONFIG names the file when no option does."""
    path = write(tmp_path, '[embedder]\nname = "hashing-64"\n')
    assert load(None, {"GATEWAY_CONFIG": str(path)}).embedder.name == "hashing-64"


def test_paths_of_the_file_are_relative_to_it(tmp_path: Path) -> None:
    """So that a folder with its settings can be moved."""
    path = write(tmp_path, 'policy = "rules-here"\nstate = "/abs/state"\n')
    settings = load(path, {})
    assert settings.policy == tmp_path / "rules-here"
    assert settings.state == Path("/abs/state")


def test_upstream_addresses_come_from_file_and_environment(tmp_path: Path) -> None:
    """GATEWAY_UPSTREAM_<NAME>: the demo's portals listen on ports of this run."""
    path = write(tmp_path, '[upstreams.partner-portal]\naddress = "http://127.0.0.1:1"\n')
    settings = load(
        path,
        {
            "GATEWAY_UPSTREAM_PARTNER_PORTAL": "http://127.0.0.1:9",
            "GATEWAY_UPSTREAM_OTHER": "https://other.internal",
        },
    )
    assert {name: one.address for name, one in settings.upstreams.items()} == {
        "partner-portal": "http://127.0.0.1:9",
        "other": "https://other.internal",
    }


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    """One run of the operator, every mistake: file, types, secrets, spelling."""
    path = write(
        tmp_path,
        """
        sample = 1
        [listen]
        public = "everywhere"
        [database]
        url = "mysql://x"
        secret_file = "absent"
        [limits]
        connections_max = "12"
        [upstreams.portal]
        address = "ftp://x"
        may_retrieve = true
        """,
    )
    assert faults(path, {"GATEWAY_DATABSE_URL": "x"}) == {
        "sample": "unknown_key",
        "listen.public": "invalid_value",
        "database.url": "invalid_value",
        "database.secret_file": "unreadable",
        "limits.connections_max": "invalid_value",
        "upstreams.portal.address": "invalid_value",
        "upstreams.portal.may_retrieve": "unknown_key",
        "GATEWAY_DATABSE_URL": "unknown_variable",
    }


@pytest.mark.parametrize(
    "text",
    [
        "[issuers.staff]\nurl = 'https://x'",
        "[routes]\nmode = 'opaque'",
        "trusted_peers = ['0.0.0.0/0']",
        "[policy_overrides]\nallow = true",
        "[listen]\nanonymous = 'customer'",
    ],
)
def test_what_could_open_access_is_no_setting(tmp_path: Path, text: str) -> None:
    """Architecture section 5: that lives in the policy folder, and here it is refused."""
    assert "unknown_key" in faults(write(tmp_path, text)).values()


@pytest.mark.parametrize("text", ["= 3", "\x00", "[a]\n[a]"])
def test_file_that_is_not_toml_is_one_fault(tmp_path: Path, text: str) -> None:
    """With the parser's line and column as the reason."""
    assert list(faults(write(tmp_path, text)).values()) == ["not_toml"]


def test_absent_file_is_one_fault(tmp_path: Path) -> None:
    """A misspelt path must not mean the defaults."""
    assert list(faults(tmp_path / "absent.toml").values()) == ["unreadable"]


def test_address_of_a_database_needs_its_secret() -> None:
    """Every role's password is derived from it: there is no default."""
    assert faults(None, {"GATEWAY_DATABASE_URL": "postgresql://db/x"}) == {
        "database": "invalid_value"
    }


def test_secret_is_read_from_its_file(tmp_path: Path) -> None:
    """Mounted secrets; the final line break is the editor's."""
    (tmp_path / "secret").write_text("s3cret \n", encoding="utf-8")
    path = write(tmp_path, '[database]\nurl = "postgresql://db/x"\nsecret_file = "secret"\n')
    secret = load(path, {}).database.secret
    assert secret is not None
    assert secret.get_secret_value() == "s3cret "


def test_secret_and_its_file_together_are_ambiguous(tmp_path: Path) -> None:
    """Which one counts must not depend on our reading order."""
    (tmp_path / "key").write_text("k", encoding="utf-8")
    path = write(tmp_path, '[qdrant]\napi_key = "a"\napi_key_file = "key"\n')
    assert faults(path) == {"qdrant.api_key_file": "ambiguous"}


def test_variable_replaces_the_secret_file(tmp_path: Path) -> None:
    """The environment wins, also over a file that is not there."""
    path = write(tmp_path, '[qdrant]\napi_key_file = "absent"\n')
    key = load(path, {"GATEWAY_QDRANT_API_KEY": "from-env"}).qdrant.api_key
    assert key is not None
    assert key.get_secret_value() == "from-env"


def test_empty_secret_is_refused(tmp_path: Path) -> None:
    """An empty secret would give every role a password that anybody can derive."""
    (tmp_path / "secret").write_text("\n", encoding="utf-8")
    path = write(tmp_path, '[database]\nsecret_file = "secret"\n')
    assert faults(path) == {"database.secret": "invalid_value"}


def test_no_secret_stands_in_a_representation_or_a_fault() -> None:
    """Settings are logged and faults printed: neither may hold a secret or a password."""
    env = DATABASE | {"GATEWAY_DATABASE_URL": "postgresql://u:p4ssw0rd@db/x"}
    assert "hunter2" not in repr(load(None, env))
    assert "p4ssw0rd" not in repr(load(None, env))
    with pytest.raises(InvalidSettings) as caught:
        load(None, env | {"GATEWAY_DATABASE_URL": "mysql://u:p4ssw0rd@db/x"})
    assert "p4ssw0rd" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("value", ["~nobody-here/x", "\x00"])
def test_path_that_cannot_be_one_is_a_fault(value: str) -> None:
    """Found by the property below: neither may end in a traceback."""
    assert faults(None, {"GATEWAY_QDRANT_API_KEY_FILE": value}) == {
        "GATEWAY_QDRANT_API_KEY_FILE": "unreadable"
    }


@pytest.mark.parametrize(
    "address", ["http://x/path", "http://x?q=1", "http://u@x", "http://x:99999", "//x", "x:80"]
)
def test_upstream_address_is_scheme_host_and_port(address: str) -> None:
    """Anything more would be dropped silently: the request's own path is what is sent."""
    assert faults(None, {"GATEWAY_UPSTREAM_PORTAL": address}) == {
        "GATEWAY_UPSTREAM_PORTAL": "invalid_value"
    }


@given(st.text(max_size=30))
def test_listen_address_is_understood_or_refused(text: str) -> None:
    """No guess: what is accepted reads back as it was written."""
    try:
        listen = Listen.parse(text)
    except ValueError:
        return
    assert Listen.parse(str(listen)) == listen


@given(st.dictionaries(st.sampled_from(sorted(ENVIRONMENT)), st.text(min_size=1, max_size=20)))
def test_any_environment_gives_settings_or_faults(env: dict[str, str]) -> None:
    """Never another exception: the operator always gets places, reasons and remedies."""
    found: tuple[object, ...] = ()
    try:
        made: Settings | None = load(None, env)
    except InvalidSettings as error:
        made, found = None, error.faults
    assert (made is None) == bool(found)


def test_foreign_variables_are_not_ours() -> None:
    """Kubernetes sets GATEWAY_SERVICE_HOST for a service named gateway."""
    env = {"GATEWAY_SERVICE_HOST": "10.0.0.1", "GATEWAY_PORT_80_TCP": "tcp://x", "X": "y"}
    assert load(None, env) == load(None, {})


def test_only_development_goes_without_signatures(tmp_path: Path) -> None:
    """A production that lost its keys file must not start as if anybody could sign."""
    assert not Settings().release.signed
    for env in (
        {"GATEWAY_RELEASE_ENVIRONMENT": "production"},
        {"GATEWAY_RELEASE_ENVIRONMENT": "staging", "GATEWAY_RELEASE_KEYS_FILE": ""},
    ):
        with pytest.raises(InvalidSettings, match="only `development` goes without"):
            load(None, env)
    file = tmp_path / "gateway.toml"
    file.write_text('[release]\nenvironment = "production"\nkeys_file = "keys.json"\n')
    release = load(file, {}).release
    assert (release.signed, release.keys_file) == (True, tmp_path / "keys.json")
    assert release.widening_signers == 2


REMOTE = 'name = "openai"\nurl = "https://e.internal/v1"\nmodel = "m"\ndims = 64\n'


def test_key_of_an_embedder_comes_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-1\n")
    path = write(tmp_path, f'[embedder]\n{REMOTE}api_key_file = "key"\n')
    told = load(path, {}).embedder
    assert told.api_key is not None
    assert told.api_key.get_secret_value() == "sk-1"
    assert "sk-1" not in repr(told)


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ('name = "openai"', "needs `url`, `model` and `dims`"),
        ('name = "fastembed"', "`fastembed` needs `model`"),
        ('model = "m"', "a bundled embedder takes no `model`"),
        ('languages = ["en"]', "a bundled embedder takes no `model` and no `languages`"),
        ('url = "https://e.internal"', "`url`, `dims` and `api_key` are for `openai` only"),
        ('folder = "here"', "`folder` is for `fastembed` and `sentence-transformers`"),
        (REMOTE.replace("https", "http") + 'api_key = "k"', "must be https, or on loopback"),
        (REMOTE + 'languages = ["english"]', "should match pattern"),
        (REMOTE + "timeout_ms = 0", "greater than or equal to 1"),
    ],
)
def test_an_embedder_gets_its_own_keys_and_no_others(
    tmp_path: Path, section: str, reason: str
) -> None:
    path = write(tmp_path, f"[embedder]\n{section}\n")
    with pytest.raises(InvalidSettings, match=re.escape(reason)):
        load(path, {})


@pytest.mark.parametrize("kept", ["events_kept_months = 1", "deliveries_kept_months = 14"])
def test_deliveries_outlive_no_event_that_is_said_of_them(tmp_path: Path, kept: str) -> None:
    """Feedback belongs to the month of its pack: `gateway check` refuses what would be a 503."""
    path = write(tmp_path, f"[signals]\n{kept}\n")
    with pytest.raises(InvalidSettings) as caught:
        load(path, {})
    (fault,) = caught.value.faults
    assert fault.place == f"{path}: signals.deliveries_kept_months"
    assert "is longer than `events_kept_months`" in fault.reason
    assert fault.remedy.startswith("keep deliveries for")
    same = "[signals]\nevents_kept_months = 2\ndeliveries_kept_months = 2\n"
    assert load(write(tmp_path, same), {}).signals.deliveries_kept_months == 2
