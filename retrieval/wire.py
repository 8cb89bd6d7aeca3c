"""What all models share that cross a process border, whoever sends them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

Address = Annotated[str, StringConstraints(min_length=1, max_length=300)]


class Wire(BaseModel):
    """Base of every model that crosses a process border: closed and immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class AppliedScope(Wire):
    """Which filters ran. Policy facts only: no counts, nothing about what was hidden."""

    audience: str
    profiles: tuple[str, ...]
    task_scope: str
    purpose: str
    tenants: tuple[str, ...]
    jurisdictions: tuple[str, ...]
    policy_digest: str
