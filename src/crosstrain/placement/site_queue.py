"""One site's queue as it was last reported: shapes on offer, own jobs, limits, and what is known of waits.

`absorb` takes a report in. It is a pure function, and taking the same report twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from crosstrain.domain.ids import Instant, SiteName
from crosstrain.placement import waits
from crosstrain.placement.forecast import Forecast
from crosstrain.placement.observations import Estimates, Wait
from crosstrain.placement.plan import number_of
from crosstrain.placement.predict import forecast
from crosstrain.placement.shape import Shape
from crosstrain.placement.waits import SAME_MS, Learning, SiteWaits

NEVER = Instant(0)
KEPT_MS = 60 * 86_400_000
"""How long a job that is over is remembered."""
MOST_STATED = 50
"""Forecasts that are made of the new jobs of one shape in one report."""


class QueueState(StrEnum):
    """What a scheduler says of an own job."""

    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"
    """It ran and is over: done, failed, or at its walltime, which is the usual end."""
    CANCELLED = "cancelled"
    """It left the queue without having run."""
    UNKNOWN = "unknown"
    """Neither queue nor accounting knows it; it is not taken for ended."""


@dataclass(frozen=True, slots=True)
class QueueJob:
    """An own job.

    Attributes:
        name: of its plan item.
        job_id: the scheduler's.
        submitted_at: or when it became eligible, if later.
        started_at: None while it waits.
    """

    name: str
    job_id: str
    shape: Shape
    state: QueueState
    submitted_at: Instant
    started_at: Instant | None = None


@dataclass(frozen=True, slots=True)
class OfferedShape:
    """A shape that the site's run file offers.

    Attributes:
        tokens_per_s: as the run file states it; None: not known before it has trained.
        windows_per_pass: B x W of such a job.
    """

    shape: Shape
    tokens_per_s: float | None = None
    windows_per_pass: int = 1


@dataclass(frozen=True, slots=True)
class Limits:
    """What the site and the user allow.

    Attributes:
        max_queued: own jobs in the queue at once.
        max_depth: jobs queued ahead of the running one.
        node_hours_left: of the award; None: not limited, or not known.
        award_ends: when the award expires.
    """

    max_queued: int = 4
    max_depth: int = 2
    node_hours_left: float | None = None
    award_ends: Instant | None = None


@dataclass(frozen=True, slots=True)
class QueueReport:
    """What one look at a site's scheduler showed; instants are the coordinator's.

    Attributes:
        at: when the look was taken.
        jobs: all own jobs that queue or recent accounting know.
        waits: of jobs that started since the last report, own earlier ones or other people's.
        startup_s, tail_s: as in `SiteQueue`.
        notes: what could not be seen, for people.
    """

    at: Instant
    offered: tuple[OfferedShape, ...] = ()
    estimates: tuple[tuple[Shape, Estimates], ...] = ()
    jobs: tuple[QueueJob, ...] = ()
    waits: tuple[tuple[Shape, Wait], ...] = ()
    discount: float | None = None
    partition_limits_s: tuple[tuple[str, float], ...] = ()
    startup_s: float | None = None
    tail_s: float | None = None
    limits: Limits = Limits()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SiteQueue:
    """All that is kept of one site.

    Attributes:
        heard_at: time of the newest report.
        waits_until: waits that were known by then are taken in already.
        last_number: highest number that a job's name ever had.
        startup_s, tail_s: of every job, from its start to its first step, and for checkpoint and upload before its end, as
            the run file says; None if it does not.
    """

    site: SiteName
    waits: SiteWaits
    offered: tuple[OfferedShape, ...] = ()
    jobs: tuple[QueueJob, ...] = ()
    limits: Limits = Limits()
    notes: tuple[str, ...] = ()
    heard_at: Instant = NEVER
    waits_until: Instant = NEVER
    last_number: int = 0
    startup_s: float | None = None
    tail_s: float | None = None


def new_queue(site: SiteName) -> SiteQueue:
    """A site that nobody reported of."""
    return SiteQueue(site, SiteWaits(site))


def absorb(queue: SiteQueue, report: QueueReport, run: str) -> SiteQueue:
    """Takes a report in. One that is older than the newest adds waits and estimates, but does not undo what is known of
    jobs and limits."""
    known = queue.waits
    for shape, wait in report.waits:
        if wait.known_at > queue.waits_until:
            known = waits.waited(known, shape, wait)
    for shape, estimates in report.estimates:
        known = waits.probed(known, shape, estimates)
    if report.discount is not None:
        known = waits.discounted(known, report.discount)
    for partition, longest_s in report.partition_limits_s:
        known = waits.limited(known, partition, longest_s)
    newest_wait = max((wait.known_at for _, wait in report.waits), default=queue.waits_until)
    queue = replace(queue, waits=known, waits_until=max(queue.waits_until, newest_wait))
    if report.at < queue.heard_at:
        return queue
    queue = _absorb_jobs(queue, report, run)
    return replace(
        queue,
        offered=report.offered,
        limits=report.limits,
        notes=report.notes,
        startup_s=report.startup_s,
        tail_s=report.tail_s,
        heard_at=report.at,
    )


def _absorb_jobs(queue: SiteQueue, report: QueueReport, run: str) -> SiteQueue:
    before = {job.name: job for job in queue.jobs}
    known = _learn(queue.waits, [job for job in report.jobs if not _settled(before.get(job.name))], report.at)
    told = {job.name for job in report.jobs}
    missing = (replace(job, state=QueueState.UNKNOWN) if _open(job) else job for job in before.values())
    kept = [job for job in missing if job.name not in told and job.submitted_at > report.at - KEPT_MS]
    jobs = sorted((*kept, *report.jobs), key=lambda job: (job.submitted_at, job.name))
    numbers = [number_of(job.name, run, queue.site) or 0 for job in report.jobs]
    return replace(queue, waits=known, jobs=tuple(jobs), last_number=max([queue.last_number, *numbers]))


def _open(job: QueueJob) -> bool:
    return job.state in (QueueState.PENDING, QueueState.RUNNING)


def _settled(before: QueueJob | None) -> bool:
    """Whether all that a job can teach of waits was learnt."""
    return before is not None and before.state in (QueueState.RUNNING, QueueState.ENDED, QueueState.CANCELLED)


def _learn(known: SiteWaits, jobs: Sequence[QueueJob], now: Instant) -> SiteWaits:
    """Submissions, starts and cancellations, each learnt once. What is stated of a new job's wait rests on what was known
    before the report: its jobs came together, so that none of them tells anything of another."""
    learning = Learning(known)
    stated = _stated(known, [job for job in jobs if not learning.knows(job.name, job.shape, job.submitted_at)])
    for job in jobs:
        if job.name in stated:
            learning.submitted(job.name, job.shape, job.submitted_at, stated[job.name])
        if job.started_at is not None:
            learning.started(job.name, job.started_at)
        elif job.state is QueueState.CANCELLED:
            learning.gone(job.name, now)
    return learning.learnt()


def _stated(known: SiteWaits, jobs: Iterable[QueueJob]) -> dict[str, Forecast]:
    """A forecast of each job's wait as of its submission. Of many jobs of a shape those that were submitted about the same
    time share one, as of the earliest: `MOST_STATED` are made, for each takes milliseconds."""
    found: dict[str, Forecast] = {}
    by_shape: dict[Shape, list[QueueJob]] = {}
    for job in jobs:
        by_shape.setdefault(job.shape, []).append(job)
    for shape, mine in by_shape.items():
        first, last = min(job.submitted_at for job in mine), max(job.submitted_at for job in mine)
        apart = max(SAME_MS, (last - first) // MOST_STATED)
        made: dict[int, Forecast] = {}
        for job in mine:
            step = (job.submitted_at - first) // apart
            if step not in made:
                made[step] = forecast(known, shape, Instant(first + step * apart))
            found[job.name] = made[step]
    return found


def left_to_wait(wait: Forecast, waited_s: float) -> Forecast:
    """What is left of a wait that has lasted `waited_s` seconds already: the distribution of W - t given W > t. Beyond all
    that was forecast, nothing but "any moment, or as long again" is known."""
    past = wait.probability_within(waited_s)
    if past >= wait.levels[-1]:
        longer = (0.1 * waited_s, waited_s, 3 * waited_s)
        reason = f"{wait.reason}; it waits longer than said"
        return replace(wait, point_s=waited_s, levels=(0.1, 0.5, 0.9), waits_s=longer, reason=reason)
    left = tuple(max(0.0, wait.quantile(past + (1 - past) * level) - waited_s) for level in wait.levels)
    return replace(wait, point_s=max(0.0, wait.quantile((1 + past) / 2) - waited_s), waits_s=left)
