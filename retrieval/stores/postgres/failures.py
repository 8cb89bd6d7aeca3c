"""The one place where Postgres' exceptions become this house's.

Whatever the server or the pool says is a refusal: nothing is answered from what came before.
The server's own message may hold values; only its class and SQLSTATE go into the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from retrieval.errors import Store, StoreUnavailable


@contextmanager
def mapped() -> Iterator[None]:
    """Turns every psycopg error (pool errors are such) inside into StoreUnavailable."""
    try:
        yield
    except psycopg.Error as fault:
        detail = type(fault).__name__
        if fault.sqlstate:
            detail += f" ({fault.sqlstate})"
        raise StoreUnavailable(Store.POSTGRES, detail) from fault
