"""Messages of placement: what collectors report of queues, and what the planner answers.

    POST /v1/placement/{site}/reports   ReportRequest -> Accepted
    GET  /v1/placement/plan                           -> PlanReply
    GET  /v1/placement/waits                          -> WaitsReply

Times are ages, in milliseconds before the request was sent: no clock of a site decides anything at the coordinator.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from crosstrain.wire.messages import Count, Finite, Message, Name, Text

Age = Annotated[int, Field(ge=0, lt=2**53)]
Duration = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
JobName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}$")]
MOST_ROWS = 10_000
"""Rows of one kind in a report."""


class ShapeBody(Message):
    """A shape: what can be submitted."""

    partition: Annotated[str, Field(max_length=200)]
    nodes: Annotated[int, Field(ge=1, lt=2**31)]
    gpus: Annotated[int, Field(ge=0, lt=2**20)] = 0
    walltime_s: Annotated[int, Field(ge=1, lt=2**40)]


class OfferedBody(Message):
    """A shape that the site's run file offers."""

    shape: ShapeBody
    tokens_per_s: Annotated[float, Field(gt=0, le=1e15)] | None = None
    windows_per_pass: Annotated[int, Field(ge=1, lt=2**31)] = 1


class EstimateBody(Message):
    """One probe of a shape; what was not asked or not answered is null."""

    shape: ShapeBody
    age_ms: Age
    test_only_s: Finite | None = None
    plan_s: Finite | None = None
    backlog_s: Finite | None = None


class JobBody(Message):
    """An own job, as the scheduler has it."""

    name: JobName
    job_id: Text
    shape: ShapeBody
    state: Literal["pending", "running", "ended", "cancelled", "unknown"]
    submitted_age_ms: Age
    started_age_ms: Age | None = None


class WaitBody(Message):
    """A wait that accounting tells of."""

    shape: ShapeBody
    submitted_age_ms: Age
    wait_s: Duration
    started: bool = True


class ReportRequest(Message):
    """What one look at a site's scheduler showed."""

    report: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{8,64}$")]
    """Made once per look: a report that is delivered twice counts once."""
    scheduler: Annotated[str, Field(max_length=50)]
    age_ms: Age = 0
    """Between the look and this request; large if the report waited for a network."""
    offered: Annotated[tuple[OfferedBody, ...], Field(max_length=200)] = ()
    estimates: Annotated[tuple[EstimateBody, ...], Field(max_length=MOST_ROWS)] = ()
    jobs: Annotated[tuple[JobBody, ...], Field(max_length=MOST_ROWS)] = ()
    waits: Annotated[tuple[WaitBody, ...], Field(max_length=MOST_ROWS)] = ()
    discount: Annotated[float, Field(gt=0, le=1)] | None = None
    partition_limits_s: dict[str, Duration] = Field(default_factory=dict)
    startup_s: Duration | None = None
    """From a job's start to its first step, as the run file says; what was measured counts more."""
    tail_s: Duration | None = None
    """The same of checkpoint and upload before its end."""
    max_queued: Annotated[int, Field(ge=1, le=1000)] = 4
    max_depth: Annotated[int, Field(ge=0, le=100)] = 2
    node_hours_left: Duration | None = None
    award_ends_ms: Age | None = None
    """Milliseconds until the award expires."""
    notes: Annotated[tuple[Text, ...], Field(max_length=100)] = ()


class ItemBody(Message):
    """A job to submit."""

    name: JobName
    shape: ShapeBody


class AlternativeBody(Message):
    """What was not chosen; null: the run would never be done."""

    what: str
    later_s: float | None


class SitePlanBody(Message):
    """What to do at one site (`placement.plan.SitePlan`); durations in seconds from the time of the plan."""

    site: Name
    role: Literal["member", "reserve", "out"]
    summary: str
    """Role and shape in one short sentence."""
    reason: str
    note: str
    """What could not be seen of the site, or is assumed."""
    shape: ShapeBody | None
    shape_reason: str
    depth: int
    depth_reason: str
    accumulation: int | None
    accumulation_reason: str
    submit: tuple[ItemBody, ...]
    keep: tuple[str, ...]
    first_start_s: tuple[float | None, ...]
    tokens: float
    active_h: float
    jobs: float
    node_hours: float
    alternatives: tuple[AlternativeBody, ...]
    heard_age_ms: int | None
    """Age of the site's newest report."""


class PlanReply(Message):
    """The plan, with the finish as quantiles; null: not within 60 days."""

    run: Name
    age_ms: int
    reason: str
    finish_s: dict[str, float | None]
    """Quantiles of the time until the run is done: "0.05" ... "0.95"."""
    tokens_left: float
    round_tokens: float
    exchange_s: float
    sites: tuple[SitePlanBody, ...]
    alternatives: tuple[AlternativeBody, ...]
    notes: tuple[str, ...]


class ErrorBody(Message):
    """The record of past error of one shape; null: nothing to say yet."""

    outcomes: Count
    coverage: tuple[float, ...] | None
    widths_s: tuple[float, ...] | None
    pinball_s: float | None
    mean_absolute_s: float | None
    median_absolute_s: float | None
    bias_s: float | None
    over_raw: float | None
    over_discounted: float | None
    share_now: float | None


class WaitRow(Message):
    """The forecast of one shape at one site, with how wrong earlier ones were."""

    site: Name
    shape: ShapeBody
    basis: str
    point_s: float
    bands_s: dict[str, tuple[float, float]]
    """Ends of the bands "0.5", "0.8" and "0.9"."""
    outcomes: int
    reason: str
    probe_age_s: float | None
    test_only_s: float | None
    plan_s: float | None
    error: ErrorBody


class WaitsReply(Message):
    """All forecasts."""

    run: Name
    rows: tuple[WaitRow, ...]
    notes: dict[str, tuple[str, ...]]
    """What could not be seen, per site."""
