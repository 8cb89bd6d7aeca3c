"""The part of a handbook that is made from the policy: between two marks, and nothing else."""

from __future__ import annotations

from typing import Final

from policies.errors import PolicyError
from policies.review.matrix import Matrix, page
from policies.review.page import Page
from policies.review.writers import markdown

BEGIN: Final = "<!-- matrix: begin, made by `gateway policy matrix --into FILE` -->"
END: Final = "<!-- matrix: end -->"
TITLE: Final = "The policy as a matrix"


class NoMarks(PolicyError):
    """The text does not hold the two marks, once each and in order."""


def inserted(text: str, report: Matrix) -> str:
    """The text with the matrix between the marks. It names no digest: a comment in a rule file
    changes that, and would make every handbook stale. Raises NoMarks."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise NoMarks(f"the file needs `{BEGIN}` and, below it, `{END}`, once each")
    head, _, rest = text.partition(BEGIN)
    section = markdown.write(Page(TITLE, page(report).blocks))
    return f"{head}{BEGIN}\n{section}{END}{rest.partition(END)[2]}"
