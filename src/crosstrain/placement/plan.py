"""A plan: which jobs to submit or keep at each site, when the run would be done, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf, isfinite

from crosstrain.domain.ids import Instant, SiteName
from crosstrain.placement.shape import Shape


class Role(StrEnum):
    """What a site is in a plan."""

    MEMBER = "member"
    """It will probably begin before the run is done."""
    RESERVE = "reserve"
    """It probably begins too late; a job that waits costs nothing, so it is submitted all the same."""
    OUT = "out"
    """Nothing is submitted there."""


@dataclass(frozen=True, slots=True)
class PlanItem:
    """A job to submit.

    Attributes:
        name: its name at the scheduler; never used twice, so that repeating the plan submits nothing twice.
        shape: of the job.
    """

    name: str
    shape: Shape


@dataclass(frozen=True, slots=True)
class Alternative:
    """Something that was not chosen.

    Attributes:
        what: for people.
        later_s: how much later the run would be done on average, seconds; infinite if never.
    """

    what: str
    later_s: float


@dataclass(frozen=True, slots=True)
class SitePlan:
    """What to do at one site.

    Attributes:
        site: its name.
        role: whether it takes part.
        summary: the role and the shape in one short sentence.
        reason: one sentence on the role.
        note: what could not be seen of the site, or is assumed; may be empty.
        shape: of jobs to come; None where nothing is submitted.
        shape_reason: why this shape.
        depth: jobs queued ahead of the running one.
        depth_reason: why so many.
        accumulation: forward passes of an optimiser step; None leaves it as it is.
        accumulation_reason: why.
        submit: new jobs, in order.
        keep: names of jobs that are there and stay.
        first_start_s: 10 %, 50 % and 90 % quantile of the first training, seconds from now; empty if out.
        tokens: expected until the run is done.
        active_h: expected hours of training until then.
        jobs: expected number of jobs until then.
        node_hours: expected charge until then.
        alternatives: other shapes, best first.
    """

    site: SiteName
    role: Role
    reason: str
    shape: Shape | None = None
    shape_reason: str = ""
    depth: int = 0
    depth_reason: str = ""
    accumulation: int | None = None
    accumulation_reason: str = ""
    submit: tuple[PlanItem, ...] = ()
    keep: tuple[str, ...] = ()
    first_start_s: tuple[float, ...] = ()
    tokens: float = 0.0
    active_h: float = 0.0
    jobs: float = 0.0
    node_hours: float = 0.0
    alternatives: tuple[Alternative, ...] = ()
    summary: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Finish:
    """When the run is done, as a distribution.

    Attributes:
        samples_s: seconds from now, ascending; infinite where it is not done within the horizon.
    """

    samples_s: tuple[float, ...]

    def quantile(self, probability: float) -> float:
        """Seconds from now."""
        if not self.samples_s:
            return inf
        place = probability * (len(self.samples_s) - 1)
        low = int(place)
        high = min(low + 1, len(self.samples_s) - 1)
        below, above = self.samples_s[low], self.samples_s[high]
        return above if place == high or not isfinite(above) else below + (place - low) * (above - below)

    def band(self, level: float) -> tuple[float, float]:
        """Ends of the central band that holds the finish with this probability, seconds from now."""
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole plan.

    Attributes:
        made_at: when.
        sites: one entry per site, in the order given.
        finish: when the run would be done.
        alternatives: other ways to run the whole, best first.
        reason: one sentence on what decides the finish.
    """

    made_at: Instant
    sites: tuple[SitePlan, ...]
    finish: Finish
    alternatives: tuple[Alternative, ...] = ()
    reason: str = ""

    def of(self, site: str) -> SitePlan | None:
        """The entry of a site."""
        return next((entry for entry in self.sites if entry.site == site), None)


_MOST_DIGITS = 12


def next_items(run: str, site: str, shape: Shape, count: int, last_number: int) -> tuple[PlanItem, ...]:
    """`count` new jobs. Names count up for ever, so the same name always means the same job."""
    return tuple(PlanItem(job_name(run, site, last_number + 1 + i), shape) for i in range(count))


def job_name(run: str, site: str, number: int) -> str:
    """The name of a job at its scheduler: plain letters, digits, '.', '_' and '-', as run and site names are."""
    return f"{run}.{site}.{number}"


def number_of(name: str, run: str, site: str) -> int | None:
    """The number in a job's name, or None if it is not a job of this run at this site. A number that no plan reaches is
    none: the names after it would be too long for every scheduler."""
    head, _, tail = name.rpartition(".")
    return int(tail) if head == f"{run}.{site}" and tail.isdecimal() and len(tail) <= _MOST_DIGITS else None


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; infinite as soon as one value is."""
    return sum(values) / len(values)
