"""The record of truth in Postgres, behind ``retrieval.stores.ports``."""

from retrieval.stores.postgres.truth import PostgresTruth

__all__ = ["PostgresTruth"]
