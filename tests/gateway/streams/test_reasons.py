"""Why a socket was not opened: the same words as for any request."""

from __future__ import annotations

import pytest
from websockets.exceptions import InvalidStatus

from gateway.reasons import Why
from tests.gateway.refused import bad_tokens, seen, unauthenticated
from tests.gateway.streams.staging import Scene
from tests.gateway.tokens import Issuers


def refused(scene: Scene, **options: object) -> tuple[str, str, str, str]:
    """What is seen of a handshake that is refused."""
    with pytest.raises(InvalidStatus), scene.socket(**options):  # type: ignore[arg-type]
        pass
    return seen(scene.last())


@pytest.mark.parametrize("why", tuple(bad_tokens(Issuers())))
def test_token_that_is_not_believed_is_logged_with_what_is_wrong(scene: Scene, why: Why) -> None:
    token, issuer = bad_tokens(scene.issuers)[why]
    assert refused(scene, token=lambda: token) == unauthenticated(why, issuer)


def test_origin_that_the_route_does_not_list_is_logged_as_such(scene: Scene) -> None:
    found = refused(scene, origin="https://canary.example")
    assert found == ("forbidden", "wrong_origin", "match", "")
