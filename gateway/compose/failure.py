"""Why a gateway or a command cannot start."""

from __future__ import annotations

from gateway.errors import GatewayError


class CannotStart(GatewayError):
    """Something that the gateway needs is not there: a code, a reason and a remedy."""

    def __init__(self, code: str, reason: str, remedy: str) -> None:
        self.code = code
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{code}: {reason}; {remedy}")


def no_database(reason: str) -> CannotStart:
    """Postgres cannot be reached."""
    remedy = "start Postgres, or mend GATEWAY_DATABASE_URL and its secret"
    return CannotStart("database_unavailable", reason, remedy)


def first_line(error: Exception) -> str:
    """What an error says in one line: drivers append whole paragraphs."""
    return (str(error).splitlines() or [type(error).__name__])[0][:400]
