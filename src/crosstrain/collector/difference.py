"""What lies between the queue and the plan. Pure.

Nothing is ever cancelled: a queued job that the plan does not name holds its age in the queue and costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from crosstrain.collector.history import charged_h
from crosstrain.collector.journal import Entry, Jobs
from crosstrain.domain.ids import Instant
from crosstrain.domain.plural import counted
from crosstrain.placement.plan import number_of
from crosstrain.wire.placement import ItemBody, ShapeBody

MISSED_MS = 600_000
"""For so long a job that nothing tells of any more may still be there: an empty queue can be a scheduler's hiccup."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What may be submitted.

    Attributes:
        against: shape -> reasons against it; shapes that are not here are not in the run file.
        max_queued: own jobs in the queue at once, running ones counted.
        node_hours: of the whole award; None: no limit.
        award_ends: no job may run beyond it.
        blocked: why nothing can be submitted now: kind, reason and what to do.
    """

    against: dict[ShapeBody, list[str]]
    max_queued: int
    node_hours: float | None = None
    award_ends: Instant | None = None
    blocked: tuple[str, str, str] | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """An item of the plan that is not submitted.

    Attributes:
        kind: machine-readable; the list is in docs/guides/placement.md.
        fix: what to do.
    """

    item: ItemBody
    kind: str
    reason: str
    fix: str


@dataclass(frozen=True, slots=True)
class Difference:
    """What to do.

    Attributes:
        keep: live jobs, in the order of their numbers.
        submit: items that are neither in the queue nor were ever submitted, in order.
        done: items of the plan that were submitted before, with what became of them.
        refused: items that may not be submitted.
    """

    keep: tuple[Entry, ...]
    submit: tuple[ItemBody, ...]
    done: tuple[Entry, ...]
    refused: tuple[Refusal, ...]


def difference(
    items: tuple[ItemBody, ...], jobs: Jobs, allowed: Allowed, run: str, site: str, now: Instant
) -> Difference:
    """Compares the plan's items with the journal, which is up to date with the queue."""
    live = sorted((entry for entry in jobs.entries if entry.open), key=lambda e: number_of(e.name, run, site) or 0)
    present = len(live) + sum(_may_be_there(entry, now) for entry in jobs.entries)
    submit: list[ItemBody] = []
    done, refused = [], []
    for item in items:
        before = jobs.of(item.name)
        if before is not None and before.state != "intent":
            done.append(before)
        elif number_of(item.name, run, site) is None:
            what = f"the plan names a job that is not of run {run} at {site}"
            refused.append(Refusal(item, "foreign_name", what, "is this the run's coordinator?"))
        elif found := _refusal(item, submit, jobs, present, allowed, now):
            refused.append(found)
        else:
            submit.append(item)
    return Difference(tuple(live), tuple(submit), tuple(done), tuple(refused))


def _may_be_there(entry: Entry, now: Instant) -> bool:
    return entry.state == "unknown" and entry.missed_ms is not None and now - entry.missed_ms < MISSED_MS


def _refusal(
    item: ItemBody, before: list[ItemBody], jobs: Jobs, present: int, allowed: Allowed, now: Instant
) -> Refusal | None:
    shape = item.shape
    if allowed.blocked is not None:
        return Refusal(item, *allowed.blocked)
    if shape not in allowed.against:
        what = f"{shape.partition}, {counted(shape.nodes, 'node')} x {shape.walltime_s} s is no shape of the run file"
        return Refusal(item, "unknown_shape", what, "run `crosstrain collect`, so that the planner knows the shapes")
    if reasons := allowed.against[shape]:
        return Refusal(
            item, "limits", "; ".join(reasons), "correct the shapes of `batch`, or wait until the site changes"
        )
    if present + len(before) >= allowed.max_queued:
        what = f"queued or running: {counted(present + len(before), 'job')}, allowed: {allowed.max_queued}"
        if missed := sum(_may_be_there(entry, now) for entry in jobs.entries):
            what += f"; of {missed} of them the scheduler told nothing at the last look, and they count for ten minutes more"
        return Refusal(item, "max_queued", what, "wait, or raise `batch.max_queued` within the site's limits")
    if allowed.node_hours is not None:
        spent = charged_h(jobs, pending=True) + sum(_node_hours(each.shape) for each in before)
        if spent + _node_hours(shape) > allowed.node_hours:
            what = f"{spent:.1f} of {allowed.node_hours:g} node-hours are used or committed, this takes {_node_hours(shape):.1f}"
            return Refusal(item, "node_hours", what, "offer a smaller shape, or raise `batch.node_hours`")
    if allowed.award_ends is not None and now + 1000 * shape.walltime_s > allowed.award_ends:
        return Refusal(
            item,
            "award_ends",
            "the job could run beyond the end of the award",
            "offer a shorter shape, or see `batch.award_ends`",
        )
    return None


def _node_hours(shape: ShapeBody) -> float:
    return shape.nodes * shape.walltime_s / 3600
