"""The closed list of refusals, and its page in the README."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.errors import Code, problem_body, status_of

README = Path(__file__).parents[2] / "gateway" / "README.md"


@pytest.mark.parametrize("code", list(Code))
def test_every_code_is_a_problem_document_and_stands_in_the_readme(code: Code) -> None:
    """Chosen by us: what can be sent is documented, with its status."""
    document = json.loads(problem_body(code, "r"))
    assert document["status"] == status_of(code) >= 400
    assert document["code"] == str(code)
    assert f"`{code}`" in README.read_text()


def test_body_of_a_refusal_depends_on_nothing_but_code_and_request() -> None:
    """Hidden and absent cannot differ."""
    assert problem_body(Code.NOT_FOUND, "r") == problem_body(Code.NOT_FOUND, "r")
