"""``gateway selftest`` through each real proxy: sound as shipped, and found out when it is not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.cli.app import run
from gateway.cli.failure import Exit
from gateway.ingress.limits import Limits
from policies.snapshot import DEFAULT_FOLDER, load
from tests.gateway.stage import Stage
from tests.gateway.test_tls import certificate
from tests.gateway.tokens import Issuers
from tests.ports import free_port
from tests.system.proxies.conftest import PEERS, Front
from tests.system.proxies.kinds import KINDS, UP, proxying

ORDER = [
    "an anonymous request is refused",
    "a damaged credential is refused",
    "forged identity headers open nothing",
    "a forged method or path opens nothing",
    "an allowed request passes (the control)",
    "a path with two readings does not pass",
    "forged headers do not arrive",
]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The installed policy: whose opaque routes the gateway under test has, too."""
    for name in ("GATEWAY_CONFIG", "GATEWAY_POLICY"):
        monkeypatch.delenv(name, raising=False)


def outcomes(capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, str], str, str]:
    """Outcome by claim, the last line, and standard error."""
    told = capsys.readouterr()
    *lines, last = told.out.splitlines() or [""]
    found = {}
    for line in [*lines, last]:
        for claim in ORDER:
            if f"  {claim}: " in line:
                found[claim] = line[:9].strip()
    return found, last, told.err


@contextlib.contextmanager
def aside(
    name: str, stage: Stage, folder: Path, edit: Callable[[Path], None] = lambda _: None
) -> Iterator[tuple[str, str]]:
    """A proxy whose upstream is nobody yet: its address, and where to stand in.

    One that lets everything through, or speaks TLS only, is up when it answers at all.
    """
    upstream, up = free_port(), UP | {b"200", b"400"}
    with proxying(
        KINDS[name], folder, gateway=stage.port, upstream=upstream, edit=edit, up=up
    ) as port:
        yield f"http://127.0.0.1:{port}", f"127.0.0.1:{upstream}"


def without(file: str, *words: str) -> Callable[[Path], None]:
    """An edit that takes every line with one of these words out of a file."""

    def edit(folder: Path) -> None:
        lines = (folder / file).read_text().splitlines()
        kept = [line for line in lines if not any(word in line for word in words)]
        assert len(kept) < len(lines)
        (folder / file).write_text("\n".join(kept) + "\n")

    return edit


def with_an_open_place(place: str) -> Callable[[Path], None]:
    """An edit that opens a place of its own to everybody."""

    def edit(folder: Path) -> None:
        path = folder / "forward-auth.conf"
        head, found, rest = path.read_text().partition("    location / {")
        assert found
        opened = f"    location {place} {{ proxy_pass http://customer_portal; }}\n"
        path.write_text(f"{head}{opened}{found}{rest}")

    return edit


def test_proxy_as_shipped_is_found_sound(front: Front, capsys: pytest.CaptureFixture[str]) -> None:
    """The issue: an anonymous request is refused through the real proxy."""
    assert run(["selftest", "--through", f"http://127.0.0.1:{front.port}"]) == Exit.OK
    found, last, errors = outcomes(capsys)
    assert [*found] == ORDER
    assert [*found.values()] == ["ok"] * 6 + ["not tried"]
    assert last == "6 shown, 1 not tried"
    assert not errors


@pytest.mark.parametrize("name", list(KINDS))
def test_standing_in_for_the_upstream_shows_what_arrives(
    name: str, deciding: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The issue: spoofed identity headers do not arrive, for a visitor and for a caller."""
    token = tmp_path / "token"
    token.write_text(deciding.issuers.token("partner") + "\n")
    with aside(name, deciding, tmp_path) as (url, upstream):
        line = ["selftest", "--through", url, "--as-upstream", upstream]
        mine = ["--token-file", str(token), "--path"]
        for more in ([], [*mine, "/portal/partner/a/b"], [*mine, "/portal/partner/"]):
            code = run([*line, *more])
            found, last, errors = outcomes(capsys)
            assert (code, errors) == (Exit.OK, "")
            assert [*found.values()] == ["ok"] * 7
            assert last == "7 shown, 0 not tried"


@pytest.mark.parametrize(
    ("name", "edit", "claim"),
    [
        ("nginx", without("forward-auth.conf", "auth_request /"), ORDER[0]),
        ("nginx", with_an_open_place("~ ^/portal/[a-z]+/$"), ORDER[0]),
        ("nginx", without("forward-auth.conf", "X-Gateway-Profile"), ORDER[6]),
        ("nginx", without("forward-auth.conf", "X-Original-URL"), ORDER[6]),
        ("envoy", without("envoy.yaml", "prefix: x-remote-"), ORDER[6]),
        ("traefik", without("forward-auth.yml", "Remote-User"), ORDER[6]),
        ("caddy", without("Caddyfile", "request_header @plain"), ORDER[6]),
    ],
)
def test_proxy_that_is_not_as_shipped_is_found_out(
    name: str,
    edit: Callable[[Path], None],
    claim: str,
    deciding: Stage,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Chosen by us: a self-test that cannot fail proves nothing."""
    token = tmp_path / "token"
    token.write_text(deciding.issuers.token("partner"))
    with aside(name, deciding, tmp_path, edit) as (url, upstream):
        line = ["selftest", "--through", url, "--as-upstream", upstream]
        assert run([*line, "--token-file", str(token)]) == Exit.REFUSED
    found, _, errors = outcomes(capsys)
    assert found[claim] == "BROKEN"
    assert errors.startswith("gateway: error: proxy_unsafe: ")


def test_index_that_is_no_route_is_the_proxys_own(
    deciding: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A page that lists the portals stands above all of them, and is not the policy's."""
    with aside("nginx", deciding, tmp_path, with_an_open_place("= /portal/")) as (url, upstream):
        line = ["selftest", "--through", url, "--as-upstream", upstream]
        assert run([*line, "--path", "/portal/partner/"]) == Exit.OK
    assert outcomes(capsys)[0][ORDER[0]] == "ok"


@pytest.fixture
def posting(proxied_issuers: Issuers, tmp_path: Path) -> Iterator[tuple[Stage, Path]]:
    """A gateway whose partner portal takes one page by GET and only POST elsewhere, and the folder
    of that policy."""
    overlay = tmp_path / "overlay"
    proxied_issuers.write(overlay)
    rules = overlay / "rules"
    (rules / "trusted_peers.yaml").write_text(PEERS)
    edits = {
        "routes.yaml": [(
            "{rest...}\n    methods: [GET, HEAD, POST]\n    mode: opaque\n    upstream: partner",
            "{rest...}\n    methods: [POST]\n    mode: opaque\n    upstream: partner-portal\n"
            "  partner-page:\n    path: /portal/partner/page\n    methods: [GET]\n"
            "    mode: opaque\n    upstream: partner",
        )],
        "routes.csv": [(
            "p, R-PAR-1, partner, portal-partner, GET|HEAD|POST, allow\n",
            "p, R-PAR-1, partner, portal-partner, POST, allow\n"
            "p, R-PAR-2, partner, partner-page, GET, allow\n",
        )],
    }  # fmt: skip
    for name, pairs in edits.items():
        text = (DEFAULT_FOLDER / "rules" / name).read_text()
        for was, now in pairs:
            assert text.count(was) == 1, (name, was)
            text = text.replace(was, now)
        (rules / name).write_text(text)
    with Stage(load(overlay=overlay), proxied_issuers, Limits()) as stage:
        yield stage, overlay


@pytest.mark.parametrize(
    ("edit", "code", "outcome"),
    [
        (lambda _: None, Exit.OK, "ok"),
        (with_an_open_place("= /portal/partner/"), Exit.REFUSED, "BROKEN"),
    ],
    ids=["as shipped", "opened"],
)
def test_index_is_asked_for_where_its_route_takes_no_get(
    edit: Callable[[Path], None],
    code: Exit,
    outcome: str,
    posting: tuple[Stage, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A place of its own to the proxy, and of a closed route's, whatever may be done there."""
    stage, overlay = posting
    with aside("nginx", stage, tmp_path, edit) as (url, upstream):
        line = ["selftest", "--through", url, "--as-upstream", upstream, "--overlay", str(overlay)]
        assert run([*line, "--path", "/portal/partner/page"]) == code
    assert outcomes(capsys)[0][ORDER[0]] == outcome


def test_proxy_behind_tls_is_asked_like_any_other(
    deciding: Stage,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its certificate counts as for every caller: one that nobody trusts is no proxy of ours."""
    pem = certificate(tmp_path)

    def with_tls(folder: Path) -> None:
        path = folder / "forward-auth.conf"
        lines = [
            f"{line.rstrip(';')} ssl; ssl_certificate {pem}; ssl_certificate_key {pem};"
            if line.strip().startswith("listen ")
            else line
            for line in path.read_text().splitlines()
        ]
        path.write_text("\n".join(lines))

    with aside("nginx", deciding, tmp_path, with_tls) as (url, upstream):
        line = ["selftest", "--through", url.replace("http:", "https:"), "--as-upstream", upstream]
        assert run(line) == Exit.UNAVAILABLE
        assert "proxy_unreachable" in outcomes(capsys)[2]
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
        assert run(line) == Exit.OK
        assert [*outcomes(capsys)[0].values()] == ["ok"] * 7


def test_refusal_without_a_decision_proves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gateway that is down refuses everything, which is not what is to be shown."""
    with proxying(KINDS["nginx"], tmp_path, gateway=free_port(), upstream=free_port()) as port:
        code = run(["selftest", "--through", f"http://127.0.0.1:{port}"])
    assert code == Exit.UNAVAILABLE
    _, _, errors = outcomes(capsys)
    assert errors.startswith("gateway: error: undecided: ")


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["--through", "ftp://x"], Exit.USAGE, "bad_address"),
        (["--through", "http://127.0.0.1:1/path"], Exit.USAGE, "bad_address"),
        (["--through", "http://127.0.0.1:1", "--as-upstream", "x"], Exit.USAGE, "bad_address"),
        (["--through", "http://127.0.0.1:1", "--path", "/a/../b"], Exit.USAGE, "bad_path"),
        (["--through", "http://127.0.0.1:1", "--token-file", "nowhere"], Exit.USAGE,
         "token_unreadable"),
        (["--through", "http://a.example", "--token-file", "nowhere"], Exit.USAGE,
         "insecure_address"),
        (["--through", "http://127.0.0.1:1"], Exit.UNAVAILABLE, "proxy_unreachable"),
        ([], Exit.USAGE, "usage"),
    ],
)  # fmt: skip
def test_what_cannot_be_tested_is_one_line_with_a_code(
    arguments: list[str], code: Exit, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """gateway/README.md, Commands."""
    assert run(["selftest", *arguments]) == code
    _, _, errors = outcomes(capsys)
    assert errors.startswith(f"gateway: error: {word}: ")
    assert len(errors.splitlines()) == 1
