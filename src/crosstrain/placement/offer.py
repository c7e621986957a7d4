"""What the planner knows of a site and of the work that is left."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from crosstrain.domain.ids import Instant, SiteName
from crosstrain.placement.forecast import Forecast
from crosstrain.placement.shape import Shape


@dataclass(frozen=True, slots=True)
class Option:
    """One shape that a site would take.

    Attributes:
        shape: of every job.
        tokens_per_s: what a job of this shape trains, measured, or scaled from another shape's measurement.
        forecast: the wait of such a job if it were submitted now.
        windows_per_pass: B x W, windows of one forward pass over all ranks: the unit of accumulation.
        usual: what such a job waits whatever the queue is now (`usual_wait`); None: as `forecast`.
    """

    shape: Shape
    tokens_per_s: float
    forecast: Forecast
    windows_per_pass: int = 1
    usual: Forecast | None = None


class JobState(StrEnum):
    """States of an own job that matter to a plan."""

    PENDING = "pending"
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class Job:
    """An own job that is queued or runs.

    Attributes:
        name: the plan item that it came from.
        shape: of the job.
        state: pending or running.
        since: when it was submitted (pending) or started (running).
        forecast: what is left of its wait; None for a running job.
    """

    name: str
    shape: Shape
    state: JobState
    since: Instant
    forecast: Forecast | None = None


@dataclass(frozen=True, slots=True)
class SiteOffer:
    """A site as the planner sees it.

    Attributes:
        name: of the site.
        options: shapes within the site's limits; an empty tuple makes the site wait for better times.
        jobs: own jobs there, in the order of their submission.
        max_queued: own jobs that may be queued at once: the site's submit limit, or a smaller wish.
        max_depth: most jobs queued behind the running one that the user wants.
        node_hours_left: what the award still pays for.
        award_ends: when the award expires.
        startup_s: seconds from a job's start to its first optimiser step.
        tail_s: seconds that a job needs for checkpoint, upload and margin before its end.
        overhead: where these two come from, for people.
        last_number: highest number of a job ever planned at this site; names are never used again.
        note: why options are missing or forecasts poor, for people.
    """

    name: SiteName
    options: tuple[Option, ...]
    jobs: tuple[Job, ...] = ()
    max_queued: int = 4
    max_depth: int = 2
    node_hours_left: float = float("inf")
    award_ends: Instant | None = None
    startup_s: float = 120.0
    tail_s: float = 60.0
    overhead: str = ""
    last_number: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Demand:
    """What is left of the run.

    Attributes:
        tokens: to train.
        round_tokens: H steps of the combined batch: what all sites together train in a round.
        exchange_s: seconds of a round in which nobody trains: upload, merge, download.
        windows_per_step: wanted windows of a combined optimiser step, divided over the sites; 0 leaves every site its own.
    """

    tokens: float
    round_tokens: float
    exchange_s: float
    windows_per_step: int = 0
