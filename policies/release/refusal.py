"""Why a release is not served: one code, one reason, one remedy."""

from __future__ import annotations

from policies.errors import PolicyError


class ReleaseRefused(PolicyError):  # noqa: N818 - reads as what it is
    """The release must not be served. ``code`` is stable and may be matched by tools."""

    def __init__(self, code: str, reason: str, remedy: str) -> None:
        self.code = code
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{code}: {reason}; {remedy}")
