"""The development identity provider: reachable from this machine only, five issuers apart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from deploy.demo import kept
from deploy.demo.identity import TOKEN_AUDIENCE, Directory, NotLoopback, application, check_loopback
from deploy.demo.people import CLIENTS, Client, Realm
from deploy.demo.servers import Servers, listen, port_of
from tests.gateway.cli.made import gateway


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Directory, str]]:
    """The real server on a free loopback port."""
    listening = listen(0)
    base = f"http://127.0.0.1:{port_of(listening)}"
    directory = Directory(
        base, kept.fresh_keys(), {one.name: f"secret of {one.name}" for one in CLIENTS}
    )
    with Servers() as servers:
        servers.serve(application(directory), listening)
        yield directory, base


@pytest.fixture
def directory(running: tuple[Directory, str]) -> Directory:
    return running[0]


@pytest.fixture
def browser(running: tuple[Directory, str]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=running[1], trust_env=False) as client:
        yield client


def form(client: Client, secret: str, grant: str = "client_credentials") -> dict[str, str]:
    return {"grant_type": grant, "client_id": client.name, "client_secret": secret}


def test_the_command_line_gets_a_token_for_a_named_identity(
    browser: httpx.Client, directory: Directory, tmp_path: Path
) -> None:
    """`gateway token --as NAME` prints one token of the provider and nothing else."""
    client = CLIENTS[0]
    file = tmp_path / "identities.json"
    entry = {
        "token_url": directory.token_url(client.realm),
        "client_id": client.name,
        "client_secret": directory.secret(client.name),
    }
    file.write_text(json.dumps({client.name: entry}))
    ended = gateway("token", "--as", client.name, "--identities", str(file))
    assert (ended.code, ended.lines) == (0, [])
    keys = KeySet.import_key_set(browser.get(f"/{client.realm}/jwks").json())
    assert jwt.decode(ended.out.strip(), keys, algorithms=["ES256"]).claims["sub"] == client.name


def granted(browser: httpx.Client, directory: Directory, client: Client) -> str:
    answer = browser.post(
        f"/{client.realm}/token", data=form(client, directory.secret(client.name))
    )
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    return str(answer.json()["access_token"])


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "192.168.1.10", "10.0.0.1", "localhost", "demo.example", "", "127.1"],  # noqa: S104 - the attack
)
def test_identity_provider_refuses_to_listen_outside_loopback(host: str) -> None:
    """Mandated by the issue: it refuses to bind outside loopback; a name may point anywhere."""
    with pytest.raises(NotLoopback, match="loopback"):
        listen(0, host)


def test_loopback_addresses_are_accepted_as_written() -> None:
    assert [check_loopback(host) for host in ("127.0.0.1", "::1", "127.9.9.9")]


def test_a_request_for_another_host_is_refused(browser: httpx.Client) -> None:
    """Attack: DNS rebinding makes a page of the internet speak to a loopback port."""
    answer = browser.get("/staff/jwks", headers={"host": "evil.example"})
    assert answer.status_code == 400


@pytest.mark.parametrize("client", CLIENTS, ids=lambda one: one.name)
def test_a_client_gets_a_token_of_its_own_realm_with_its_fixed_claims(
    browser: httpx.Client, directory: Directory, client: Client
) -> None:
    token = granted(browser, directory, client)
    keys = KeySet.import_key_set(browser.get(f"/{client.realm}/jwks").json())
    read = jwt.decode(token, keys, algorithms=["ES256"])
    assert read.header["typ"] == "at+jwt"
    assert read.claims["iss"] == directory.issuer(client.realm)
    assert read.claims["aud"] == TOKEN_AUDIENCE
    assert read.claims["sub"] == client.name
    assert {name: read.claims[name] for name in client.claims} == client.claims


def test_a_token_of_one_realm_does_not_verify_with_the_keys_of_another(
    browser: httpx.Client, directory: Directory
) -> None:
    token = granted(browser, directory, CLIENTS[0])
    for realm in set(Realm) - {CLIENTS[0].realm}:
        keys = KeySet.import_key_set(browser.get(f"/{realm}/jwks").json())
        with pytest.raises(JoseError):
            jwt.decode(token, keys, algorithms=["ES256"])


def test_published_keys_are_public_only(browser: httpx.Client) -> None:
    for realm in Realm:
        (key,) = browser.get(f"/{realm}/jwks").json()["keys"]
        assert "d" not in key


def test_discovery_names_the_issuer_byte_for_byte(
    browser: httpx.Client, directory: Directory
) -> None:
    for realm in Realm:
        document = browser.get(f"/{realm}/.well-known/openid-configuration").json()
        assert document["issuer"] == directory.issuer(realm)
        assert document["grant_types_supported"] == ["client_credentials"]


def test_a_client_gets_nothing_at_another_realm_or_with_another_secret(
    browser: httpx.Client, directory: Directory
) -> None:
    client = CLIENTS[0]
    own, other = directory.secret(client.name), directory.secret("employee")
    for realm, secret in ((Realm.STAFF, own), (client.realm, other), (client.realm, "")):
        answer = browser.post(f"/{realm}/token", data=form(client, secret))
        assert answer.status_code in {400, 401}
        assert "access_token" not in answer.json()


def test_only_client_credentials_are_granted(browser: httpx.Client, directory: Directory) -> None:
    client = CLIENTS[0]
    body = form(client, directory.secret(client.name), "password")
    answer = browser.post(f"/{client.realm}/token", data=body)
    assert (answer.status_code, answer.json()) == (400, {"error": "unsupported_grant_type"})


def test_two_credentials_in_one_request_are_none(
    browser: httpx.Client, directory: Directory
) -> None:
    client = CLIENTS[0]
    secret = directory.secret(client.name)
    answer = browser.post(
        f"/{client.realm}/token", data=form(client, secret), auth=(client.name, secret)
    )
    assert answer.status_code == 401
