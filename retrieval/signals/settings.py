"""How signals are drawn: thresholds, windows and retention, all in one place.

Laws
    * Nothing here opens access, and nothing here is read while a question is answered.
    * Every bound is finite. A value outside its range is refused at construction.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator

Months = Annotated[int, Field(ge=1, le=120)]


class SignalSettings(BaseModel):
    """``webhook_url``: who hears of gaps that were routed; none: the tables alone tell.

    How many subjects change a thread's health is a threshold of the policy.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    events_kept_months: Months = 13
    deliveries_kept_months: Annotated[Months, Field(validate_default=True)] = 2
    """How long a pack can be cited and spoken about; its rows name the subject."""
    repeated: Annotated[int, Field(ge=1, le=10_000)] = 3
    """How often a gap is met before it is routed."""
    routed_per_subject: Annotated[int, Field(ge=1, le=10_000)] = 20
    """How many gaps that one subject met first are routed a day; anonymous callers are one."""
    routed_per_audience: Annotated[int, Field(ge=1, le=100_000)] = 200
    """How many gaps of one audience are routed a day; subjects take turns."""
    term_subjects_min: Annotated[int, Field(ge=3, le=1_000)] = 5
    """How many different subjects have used a word of questions before it is written down."""
    window: timedelta = timedelta(days=30)
    """How long a word or a judgement of a subject counts."""
    pause: timedelta = timedelta(hours=24)
    """How long the health of a thread stays before feedback may change it again."""
    search_again: timedelta = timedelta(minutes=10)
    """How soon after a pack another question of the same subject is an extra search."""
    caught_up: timedelta = timedelta(hours=1)
    """How far back a pass looks for them: what a worker missed for longer stays missed."""
    units_min: Annotated[int, Field(ge=1, le=1_000)] = 2
    """A thread with fewer units is weak."""
    units_max: Annotated[int, Field(ge=1, le=1_000_000)] = 400
    """A thread with more units is overbroad."""
    stale_days: Annotated[int, Field(ge=1, le=36_500)] = 365
    """A thread that is quiet for longer is stale."""
    check_hours: Annotated[int, Field(ge=0, le=8_760)] = 24
    """Between two health checks of all threads; 0: none but by hand."""
    coverage_min: Annotated[float, Field(gt=0, le=1)] = 0.2
    """The share of a question's word mass that a text has if it is about it at all."""
    period_s: Annotated[float, Field(gt=0, le=3_600)] = 30.0
    """Between two passes over new events."""
    webhook_url: str | None = None
    webhook_secret: SecretStr | None = None
    webhook_timeout_s: Annotated[float, Field(gt=0, le=60)] = 5.0

    @field_validator("deliveries_kept_months")
    @classmethod
    def _what_is_said_of_a_pack_has_a_place(cls, months: int, told: ValidationInfo) -> int:
        # feedback is an event of the pack's own month
        if months > told.data.get("events_kept_months", months):
            raise ValueError("is longer than `events_kept_months`")
        return months


MONTHS_AHEAD: Final = 3
"""Partitions that stand ready; a worker that is down for less than that costs nobody anything."""
