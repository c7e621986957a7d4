"""What became of the jobs of this run at this site: the journal brought up to date with the scheduler.

A job is found by its name in the queue, by its id where it left the queue, and by its name in accounting where no id is known,
because the command died between `sbatch` and its answer. What nobody can tell stays unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crosstrain.batch.readings import JobRow, JobState, Listing
from crosstrain.batch.scheduler import BatchSystem, Found
from crosstrain.batch.times import Timestamp
from crosstrain.collector.journal import Entry, Jobs, State
from crosstrain.domain.ids import Instant
from crosstrain.domain.timeouts import SCHEDULER_S
from crosstrain.placement.plan import number_of
from crosstrain.wire.placement import ShapeBody

SETTLE_MS = 120_000
"""A submission whose answer was lost may still be on its way for so long, or twice a command's deadline if that is longer."""
FORGOTTEN_MS = 3_600_000
"""Where nothing tells of ended jobs, a name that is not in the queue is taken for never submitted only after this."""
WATCHED_MS = 7 * 86_400_000
"""A job that nobody knew of is asked for again for so long."""
CLOCKS_MS = 600_000
"""How far this machine's clock may be ahead of the scheduler's."""


@dataclass(frozen=True, slots=True)
class Place:
    """Whose jobs they are.

    Attributes:
        user: own name at the scheduler; None where rows cannot be told by it.
        shapes: that the run file offers, for jobs that the journal does not know.
        deadline_s: of one command.
    """

    run: str
    site: str
    user: str | None
    shapes: Sequence[ShapeBody]
    deadline_s: float = SCHEDULER_S

    @property
    def settle_ms(self) -> int:
        return max(SETTLE_MS, round(2000 * self.deadline_s))


def track(system: BatchSystem, jobs: Jobs, queue: Listing[JobRow], place: Place, now: Instant) -> Jobs:
    """The journal after a look. Asks the scheduler only for jobs that should be there and are not in `queue`."""
    jobs = listed(jobs, queue.rows, place, now)
    if queue.failure is not None:
        return jobs
    seen = {row.job_id for row in queue.rows}
    asked = [entry for entry in jobs.entries if entry.job_id and entry.job_id not in seen and _asked_for(entry, now)]
    if asked:
        _, found = system.states([entry.job_id for entry in asked if entry.job_id])
        last = {row.job_id: row for row in found.rows}
        for entry in asked:
            row = last.get(entry.job_id or "")
            missed = {"state": "unknown", "missed_ms": entry.missed_ms or now}
            changed = entry.model_copy(update=missed) if row is None else updated(entry, row, jobs, now)
            jobs = jobs.put(changed)
    for entry in [entry for entry in jobs.entries if entry.state == "intent"]:
        found_one = system.find(entry.name, (entry.intent_ms - CLOCKS_MS) // 1000, place.user)
        jobs = resolved(jobs, entry, found_one, place.settle_ms, now)
    return jobs


def listed(jobs: Jobs, rows: Sequence[JobRow], place: Place, now: Instant) -> Jobs:
    """The journal with the rows of a queue taken in, those of jobs that it never heard of too."""
    for row in rows:
        if row.name is None or number_of(row.name, place.run, place.site) is None:
            continue
        if place.user is not None and row.user not in (None, place.user):
            continue
        entry = jobs.of(row.name) or Entry(
            name=row.name, shape=_shape(row, place.shapes), state="unknown", intent_ms=_ms(row.submit) or now
        )
        jobs = jobs.put(updated(entry, row, jobs, now))
    return jobs


def resolved(jobs: Jobs, entry: Entry, found: Found, settle_ms: int, now: Instant) -> Jobs:
    """What an intent without an answer has become: a job; nothing, which frees its name; or still unknown."""
    if found.row is not None:
        return jobs.put(updated(entry, found.row, jobs, now))
    age_ms = now - entry.intent_ms
    waited = age_ms >= (settle_ms if found.remembers else max(settle_ms, FORGOTTEN_MS))
    return jobs.without(entry.name) if found.queue_answered and waited else jobs


def updated(entry: Entry, row: JobRow, jobs: Jobs, now: Instant) -> Entry:
    """An entry with what a row says."""
    ran = row.elapsed_s is None or row.elapsed_s > 0
    state = _state(row, ran)
    submitted = _ms(row.submit) or entry.submitted_ms or entry.intent_ms
    started = _ms(row.start) if state in ("running", "ended") else None
    ended = _ms(row.end) if state in ("ended", "cancelled") else None
    eligible = _ms(row.eligible)
    if eligible is None:
        before = jobs.of(entry.after) if entry.after else None
        freed = before.ended_ms if before else None
        held = state == "pending" and (not row.in_queue or (entry.after is not None and freed is None))
        eligible = None if held else max(submitted, freed or submitted)
    return entry.model_copy(
        update={
            "state": state,
            "job_id": row.job_id,
            "submitted_ms": submitted,
            "eligible_ms": eligible if eligible is None or started is None else min(eligible, started),
            "started_ms": started or (entry.started_ms if state in ("running", "ended") else None),
            "ended_ms": ended or (entry.ended_ms or now if state in ("ended", "cancelled") else None),
            "missed_ms": None,
        }
    )


def _state(row: JobRow, ran: bool) -> State:
    match row.state:
        case JobState.PENDING | JobState.REQUEUED:
            return "pending"
        case JobState.RUNNING | JobState.SUSPENDED:
            return "running"
        case JobState.CANCELLED if row.start is None or not ran:
            return "cancelled"
        case JobState.UNKNOWN:
            return "unknown"
    return "ended"


def _asked_for(entry: Entry, now: Instant) -> bool:
    return entry.open or (entry.state == "unknown" and now - entry.intent_ms < WATCHED_MS)


def _shape(row: JobRow, shapes: Sequence[ShapeBody]) -> ShapeBody:
    """The offered shape that a row looks like; else what the row says."""
    size = (row.partition or "", row.nodes or 1, max(1, row.time_limit_s or 1))
    like = (shape for shape in shapes if (shape.partition, shape.nodes, shape.walltime_s) == size)
    return next(like, ShapeBody(partition=size[0], nodes=size[1], walltime_s=size[2]))


def _ms(when: Timestamp | None) -> int | None:
    return None if when is None or when.epoch is None else round(1000 * when.epoch)
