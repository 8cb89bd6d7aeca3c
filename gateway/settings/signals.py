"""What is drawn from questions that found nothing, how long it is kept, and who is told."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from gateway.settings.kinds import FilePath, HttpUrl, Milliseconds, Secret, Section

Months = Annotated[int, Field(ge=1, le=120)]


class SignalsSettings(Section):
    """``worker``: whether this gateway starts one; without any, rates and signals stand still.

    ``webhook_url`` takes signed messages (Standard Webhooks) under ``webhook_secret`` (``whsec_``
    and base64). The rest is explained in ``retrieval.signals.settings``.
    """

    worker: bool = True
    webhook_url: HttpUrl | None = None
    webhook_secret: Secret | None = None
    webhook_secret_file: FilePath | None = None
    webhook_timeout_ms: Annotated[int, Field(ge=1, le=60_000)] = 5_000
    period_ms: Milliseconds = 30_000
    repeated: Annotated[int, Field(ge=1, le=10_000)] = 3
    routed_per_subject: Annotated[int, Field(ge=1, le=10_000)] = 20
    routed_per_audience: Annotated[int, Field(ge=1, le=100_000)] = 200
    units_min: Annotated[int, Field(ge=1, le=1_000)] = 2
    units_max: Annotated[int, Field(ge=1, le=1_000_000)] = 400
    stale_days: Annotated[int, Field(ge=1, le=36_500)] = 365
    check_hours: Annotated[int, Field(ge=0, le=8_760)] = 24
    term_subjects_min: Annotated[int, Field(ge=3, le=1_000)] = 5
    window_days: Annotated[int, Field(ge=1, le=365)] = 30
    pause_hours: Annotated[int, Field(ge=1, le=8_760)] = 24
    events_kept_months: Months = 13
    deliveries_kept_months: Annotated[Months, Field(validate_default=True)] = 2

    @field_validator("deliveries_kept_months")
    @classmethod
    def _what_is_said_of_a_pack_has_a_place(cls, months: int, told: ValidationInfo) -> int:
        # feedback is an event of the pack's own month, which must be there
        events = told.data.get("events_kept_months", months)
        if months > events:
            raise ValueError(
                f"{months} is longer than `events_kept_months`, {events};"
                f" keep deliveries for {events} months at most, or events for longer"
            )
        return months

    @model_validator(mode="after")
    def _messages_are_signed(self) -> Self:
        if self.webhook_url is not None and self.webhook_secret is None:
            raise ValueError("needs `webhook_secret` or `webhook_secret_file` beside `webhook_url`")
        return self
