"""Postgres and the vector engine, run by us until the deployment outgrows them.

Only this folder knows how they are started. Everyone else gets two addresses and their
secrets, exactly as they would for servers of their own.
"""

from retrieval.embedded.errors import EmbeddedError
from retrieval.embedded.supervisor import Death, Embedded, start

__all__ = ["Death", "Embedded", "EmbeddedError", "start"]
