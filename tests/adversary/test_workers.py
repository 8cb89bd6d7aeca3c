"""Two workers whose callers are known, attacked over kept connections that several people share.

Provenance: issue 4, "Must hold": no response reached the wrong caller.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from gateway.authn.claims import subject_id
from retrieval.embedded import Embedded
from tests.adversary.client import Kept
from tests.adversary.process import Gateway, running_gateway
from tests.adversary.test_told import metrics
from tests.gateway.tokens import URLS
from tests.services import Cluster, Database, fresh_database

pytestmark = pytest.mark.timeout(180)
LINES = 12
ROUNDS = 40
SEED = 4
PEOPLE = {
    "ann": ("customer", "idp:customers"),
    "ben": ("customer", "idp:customers"),
    "pat": ("partner", "idp:partners"),
}
OTHER = {"customer": "partner", "partner": "customer"}


@pytest.fixture(scope="module")
def two_workers(
    services: Embedded,
    cluster: Cluster,
    migrated_template: Database,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Gateway]:
    """``gateway serve --workers 2``."""
    folder = tmp_path_factory.mktemp("workers")
    with (
        fresh_database(cluster, template=migrated_template.name) as database,
        running_gateway(services, database, folder, workers=2) as gateway,
    ):
        yield gateway


def test_known_callers_on_shared_connections_get_their_own_answers(two_workers: Gateway) -> None:
    """S15, B6: two customers and a partner take turns on each of twelve connections, as behind one
    proxy, with attacks and callers who leave in between: each answer says who it is for, nothing
    denied arrives, and each worker had some of them."""
    blocks = {
        name: b"Host: gateway.test\r\nAuthorization: Bearer %b\r\n\r\n"
        % two_workers.issuers.token(audience, sub=name).encode()
        for name, (audience, _) in PEOPLE.items()
    }
    subjects = {name: subject_id(URLS[alias], name) for name, (_, alias) in PEOPLE.items()}
    start = threading.Barrier(LINES)

    def line(number: int) -> int:
        chance = random.Random(SEED + number)
        right = 0
        start.wait(20)
        with Kept(two_workers) as kept:
            for round_ in range(ROUNDS):
                for name in chance.sample(sorted(PEOPLE), len(PEOPLE)):
                    audience, block = PEOPLE[name][0], blocks[name]
                    target = f"/portal/{audience}/{number}/{round_}/{name}"
                    reply = kept.ask(f"GET {target} HTTP/1.1\r\n".encode() + block)
                    assert reply is not None
                    assert reply.status == 200, reply
                    said = json.loads(reply.body)
                    assert (said["target"], said["subject"], said["audience"]) == (
                        target, [subjects[name]], [audience],
                    )  # fmt: skip
                    right += 1
                    attack = chance.choice(["foreign", "dots", "pipelined", "gone", "two tokens"])
                    _attacked(two_workers, kept, attack, audience, block, chance)
        return right

    with ThreadPoolExecutor(LINES) as threads:
        assert sum(threads.map(line, range(LINES))) == LINES * ROUNDS * len(PEOPLE)
    allowed = {(f"{audience}-portal", subjects[name], audience)
               for name, (audience, _) in PEOPLE.items()}  # fmt: skip
    for seen in two_workers.arrived:
        who = seen.portal, seen.value("x-gateway-subject"), seen.value("x-gateway-audience")
        assert who in allowed, seen
        assert "denied" not in seen.target
        name = seen.target.rpartition("/")[2]
        assert name not in subjects or subjects[name] == who[1]
    served = {
        name.partition('worker="')[2].partition('"')[0]: count
        for name, count in metrics(two_workers).items()
        if name.startswith("gateway_requests_total{")
        and 'route="portal-customer"' in name
        and 'status="200"' in name
    }
    assert len(served) == 2
    assert sum(served.values()) >= 2 * LINES * ROUNDS
    assert two_workers.faults() == []


def _attacked(
    gateway: Gateway, kept: Kept, attack: str, audience: str, block: bytes, chance: random.Random
) -> None:
    """One thing that must not change whose the next answer is."""
    foreign = f"GET /portal/{OTHER[audience]}/denied HTTP/1.1\r\n".encode() + block
    own = f"GET /portal/{audience}/gone HTTP/1.1\r\n".encode() + block
    match attack:
        case "foreign":
            reply = kept.ask(foreign)
            assert reply is not None
            assert reply.status == 403
        case "dots":
            line = f"GET /portal/{audience}/../{OTHER[audience]}/denied HTTP/1.1\r\n".encode()
            reply = kept.ask(line + block)
            assert reply is not None
            assert reply.status in {400, 404}
        case "pipelined":  # what is known, with something behind it in the same read
            last = foreign[:-2] + b"Connection: close\r\n\r\n"
            assert [reply.status for reply in gateway.replies(own + last)] == [200, 403]
        case "two tokens":
            reply = kept.ask(foreign[:-2] + block.partition(b"\r\n")[2])
            assert reply is not None
            assert reply.status == 401
        case _:  # leaves while its answer is on its way, or before
            with gateway.connect() as sock:
                sock.sendall(own[: chance.choice([len(own), len(own) - 3])])
