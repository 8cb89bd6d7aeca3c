"""The ids of governed objects: made from their names, so that every run makes the same ones."""

from __future__ import annotations

from typing import Final
from uuid import UUID, uuid5

NAMESPACE: Final = UUID("6d3f5a0e-6f0b-5c55-9a44-3e4b7c1d9f10")
"""Fixed for ever: another namespace would be another corpus."""


def unit_id(address: str) -> UUID:
    return uuid5(NAMESPACE, f"unit:{address}")


def thread_id(address: str) -> UUID:
    return uuid5(NAMESPACE, f"thread:{address}")


def label_id(term: str, version: int, tenant: str) -> UUID:
    return uuid5(NAMESPACE, f"label:{tenant}\n{term}\n{version}")


def artifact_id(thread: UUID, stage: str, title: str) -> UUID:
    return uuid5(NAMESPACE, f"artifact:{thread}\n{stage}\n{title}")


def edge_id(source: UUID, relation: str, target: UUID) -> UUID:
    return uuid5(NAMESPACE, f"edge:{source}\n{relation}\n{target}")
