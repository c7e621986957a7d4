"""From what is kept of a site to what the planner is told of it."""

from __future__ import annotations

from dataclasses import dataclass

from crosstrain.domain.ids import Instant
from crosstrain.placement.forecast import Forecast
from crosstrain.placement.offer import Job, JobState, Option, SiteOffer
from crosstrain.placement.overhead import Overhead
from crosstrain.placement.predict import forecast
from crosstrain.placement.shape import Shape
from crosstrain.placement.site_queue import OfferedShape, QueueState, SiteQueue, left_to_wait
from crosstrain.placement.usual import usual_wait

SILENT_MS = 24 * 3_600_000
"""A site of which nobody reported for this long is planned with all the same, and the plan says so."""
ASSUMED_PER_GPU = 1000.0
"""Tokens per second of an accelerator (or of a node without any) where nothing is known: what matters is the ratio."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Measured tokens per second of a site, and the shape of the job that it was measured with."""

    tokens_per_s: float
    shape: Shape | None


def offer(queue: SiteQueue, measured: float | None, lost: Overhead, now: Instant) -> SiteOffer:
    """A site as the planner sees it.

    Args:
        measured: tokens per second of its sessions, None before it has trained.
        lost: what a job of it does not train.
    """
    speed = None if measured is None else Speed(measured, _trained_with(queue))
    options = tuple(
        Option(
            each.shape,
            _tokens_per_s(each, speed),
            forecast(queue.waits, each.shape, now),
            each.windows_per_pass,
            usual_wait(queue.waits, each.shape, now),
        )
        for each in queue.offered
    )
    limits = queue.limits
    return SiteOffer(
        name=queue.site,
        options=() if limits.node_hours_left == 0 else options,
        jobs=_jobs(queue, now),
        max_queued=limits.max_queued,
        max_depth=limits.max_depth,
        node_hours_left=float("inf") if limits.node_hours_left is None else limits.node_hours_left,
        award_ends=limits.award_ends,
        startup_s=lost.startup_s,
        tail_s=lost.tail_s,
        overhead=lost.reason,
        last_number=queue.last_number,
        note=_note(queue, speed, now),
    )


def _trained_with(queue: SiteQueue) -> Shape | None:
    ran = [job for job in queue.jobs if job.state in (QueueState.RUNNING, QueueState.ENDED)]
    return ran[-1].shape if ran else None


def _tokens_per_s(offered: OfferedShape, speed: Speed | None) -> float:
    """Measured for the shape that ran, else as the run file says, else scaled by nodes from what was measured."""
    if speed is not None and speed.shape is not None and speed.shape.nodes == offered.shape.nodes:
        return speed.tokens_per_s
    if offered.tokens_per_s is not None:
        return offered.tokens_per_s
    if speed is not None:
        nodes = speed.shape.nodes if speed.shape is not None else offered.shape.nodes
        return speed.tokens_per_s * offered.shape.nodes / nodes
    return ASSUMED_PER_GPU * offered.shape.nodes * max(1, offered.shape.gpus)


def _jobs(queue: SiteQueue, now: Instant) -> tuple[Job, ...]:
    """Own jobs that run or wait."""
    stated = {each.job: each.stated for held in queue.waits.shapes for each in held.open}
    fresh: dict[Shape, Forecast] = {}
    found = []
    for job in queue.jobs:
        if job.state is QueueState.RUNNING and job.started_at is not None:
            found.append(Job(job.name, job.shape, JobState.RUNNING, job.started_at))
        elif job.state is QueueState.PENDING:
            waited_s = max(0.0, (now - job.submitted_at) / 1000)
            if job.name not in stated and job.shape not in fresh:
                fresh[job.shape] = forecast(queue.waits, job.shape, now)
            left = left_to_wait(stated.get(job.name) or fresh[job.shape], waited_s)
            found.append(Job(job.name, job.shape, JobState.PENDING, job.submitted_at, left))
    return tuple(found)


def _note(queue: SiteQueue, speed: Speed | None, now: Instant) -> str:
    notes = list(queue.notes)
    if now - queue.heard_at > SILENT_MS:
        notes.append(f"nobody reported of its queue for {(now - queue.heard_at) / 3_600_000:.0f} h")
    if speed is None and any(each.tokens_per_s is None for each in queue.offered):
        notes.append(f"its speed is unknown, {ASSUMED_PER_GPU:,.0f} tokens/s per accelerator are assumed")
    if queue.limits.node_hours_left == 0:
        notes.append("its award is used up")
    return "; ".join(notes)
