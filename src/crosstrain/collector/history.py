"""What accounting and the own journal tell: waits of like jobs, the usage discount, and what the award was charged. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import log

from crosstrain.batch.readings import JobRow
from crosstrain.batch.slurm.accounting import counts_for_usage, usage_ratio
from crosstrain.collector.journal import Entry, Jobs
from crosstrain.domain.ids import Instant
from crosstrain.domain.plural import counted
from crosstrain.placement.run_times import NEWEST_RUNS, PastRun
from crosstrain.wire.placement import JobBody, ShapeBody, WaitBody

MOST_WAITS = 200
"""Of a report: the newest."""
MOST_JOBS = 500
FEWEST_ENDED = 10
FEWEST_USERS = 2
"""Jobs and users that a usage discount is taken from."""
ALIKE = log(2)
"""A job is like a shape if nodes and limit differ by at most a factor of two."""


def waits(
    rows: Sequence[JobRow], shapes: Sequence[ShapeBody], own: Collection[str], since: Instant, now: Instant
) -> list[WaitBody]:
    """Waits of started jobs that are like a shape on offer, newest last.

    Args:
        own: ids of jobs that are reported as own jobs.
        since: those that started by then are known.
    """
    found = []
    for row in rows:
        start = row.start.epoch if row.start else None
        begun = max((when.epoch for when in (row.submit, row.eligible) if when and when.epoch), default=None)
        shape = _like(row, shapes)
        if start is None or begun is None or shape is None or row.job_id in own or not row.elapsed_s:
            continue
        if not since < 1000 * start <= now or begun > start:
            continue
        age = max(0, now - round(1000 * begun))
        found.append((start, WaitBody(shape=shape, submitted_age_ms=age, wait_s=start - begun)))
    return [wait for _, wait in sorted(found, key=lambda item: item[0])[-MOST_WAITS:]]


def _like(row: JobRow, shapes: Sequence[ShapeBody]) -> ShapeBody | None:
    if not row.nodes or not row.time_limit_s:
        return None
    nodes, limit = row.nodes, row.time_limit_s

    def apart(shape: ShapeBody) -> float:
        return max(abs(log(nodes / shape.nodes)), abs(log(limit / shape.walltime_s)))

    near = [shape for shape in shapes if shape.partition == row.partition and apart(shape) <= ALIKE]
    return min(near, key=apart, default=None)


def discount(rows: Sequence[JobRow]) -> tuple[float | None, str]:
    """Used over requested node-time of ended jobs, and a note on whose they are. Where only own jobs can be seen
    (PrivateData), or a handful, they tell nothing of the jobs that one waits for: a test of seconds would promise no wait."""
    ended = [row for row in rows if counts_for_usage(row)]
    ratio = usage_ratio(ended)
    users = {row.user for row in ended}
    note = f"the usage discount is that of {counted(len(ended), 'job')} of {counted(len(users), 'user')}"
    if len(ended) > 0 and (len(ended) < FEWEST_ENDED or len(users) < FEWEST_USERS):
        return (
            None,
            f"no usage discount: only {counted(len(ended), 'job')} of {counted(len(users), 'user')} can be seen",
        )
    # Zero is a machine whose jobs all failed at once, which tells nothing of how long jobs run.
    return (min(1.0, ratio), note) if ratio else (None, "no job ended that tells how much of their time jobs use")


Run = tuple[str, float, float]
"""Owner, time limit in seconds and the share of it that a job ran: how the journal keeps a `PastRun`."""


def runs(rows: Sequence[JobRow], kept: Sequence[Run], until: int, now: Instant) -> tuple[tuple[Run, ...], int]:
    """Jobs that ended, newest last, the newest `NEWEST_RUNS`, and when the last of them did.

    Args:
        kept: those that are known.
        until: rows of jobs that ended by then are among them.
    """
    ended = sorted(
        (round(1000 * row.end.epoch), (row.user or "", float(row.time_limit_s), row.usage_ratio))
        for row in rows
        if counts_for_usage(row) and row.end and row.end.epoch and row.time_limit_s and row.usage_ratio
    )
    new = [(at, run) for at, run in ended if until < at <= now]
    return (*kept, *(run for _, run in new))[-NEWEST_RUNS:], max([until, *(at for at, _ in new)])


def past_runs(kept: Sequence[Run]) -> list[PastRun]:
    """What run times are drawn from: nothing where so few jobs or users are known that they tell nothing of the others."""
    told = len(kept) >= FEWEST_ENDED and len({owner for owner, _, _ in kept}) >= FEWEST_USERS
    return [PastRun(*run) for run in kept] if told else []


def job_bodies(jobs: Jobs, now: Instant) -> list[JobBody]:
    """Own jobs as they are reported, the newest `MOST_JOBS`."""
    told = [entry for entry in jobs.entries if entry.job_id is not None and entry.state != "intent"]
    return [_body(entry, now) for entry in told[-MOST_JOBS:]]


def _body(entry: Entry, now: Instant) -> JobBody:
    # What waits for another job is not yet waiting for the queue.
    begun = entry.eligible_ms if entry.eligible_ms is not None else (now if entry.state == "pending" else None)
    begun = begun if begun is not None else entry.submitted_ms or entry.intent_ms
    age = max(0, now - begun)
    started = None if entry.started_ms is None else min(age, max(0, now - entry.started_ms))
    assert entry.job_id is not None
    assert entry.state != "intent"
    return JobBody(
        name=entry.name,
        job_id=entry.job_id,
        shape=entry.shape,
        state=entry.state,
        submitted_age_ms=age,
        started_age_ms=started,
    )


def charged_h(jobs: Jobs, *, pending: bool) -> float:
    """Node-hours that the award was charged or is committed to; jobs of unknown length count to their limits.

    Args:
        pending: whether those in the queue count too.
    """
    return sum(_charge(entry, pending) for entry in jobs.entries)


def _charge(entry: Entry, pending: bool) -> float:
    if entry.state == "cancelled" or (entry.state == "pending" and not pending):
        return 0.0
    limit_s = float(entry.shape.walltime_s)
    if entry.state == "ended" and entry.started_ms is not None and entry.ended_ms is not None:
        limit_s = max(0.0, (entry.ended_ms - entry.started_ms) / 1000)
    return entry.shape.nodes * limit_s / 3600
