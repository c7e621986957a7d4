"""The wait of a shape by an own plan of the visible queue (`placement.queue_plan`). Pure.

Only where other people's jobs can be seen: with PrivateData a queue looks empty and every wait would be nothing. Nodes that
are used without a visible job give that away. Jobs of other partitions on the same nodes count as long as they run, as nodes
that are not idle; when those come free is not known, so they count as never.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from crosstrain.batch.readings import JobRow, JobState, PartitionRow, Reservation
from crosstrain.placement.queue_plan import FreeNodes, plan_queue
from crosstrain.placement.shape import Shape

ENDLESS_S = 1e9
"""A job without a limit."""
_FREE = frozenset({"idle", "planned"})
_USED = frozenset({"alloc", "allocated", "mix", "mixed"})


def others_hidden(queue: Sequence[JobRow], nodes: Sequence[PartitionRow]) -> bool:
    """Whether more nodes are in use than the visible jobs run on."""
    visible = sum(row.nodes or 1 for row in queue if row.state in (JobState.RUNNING, JobState.SUSPENDED))
    used: dict[str, int] = {}
    for row in nodes:
        if row.state in _USED:
            used[row.partition] = used.get(row.partition, 0) + (row.nodes or 0)
    return max(used.values(), default=0) > visible


def plan_of(partition: str, queue: Sequence[JobRow], nodes: Sequence[PartitionRow]) -> FreeNodes | None:
    """What the jobs of a partition leave free; None if nothing is known of its nodes."""
    mine = [row for row in nodes if row.partition == partition]
    if not mine:
        return None
    idle = sum(row.nodes or 0 for row in mine if row.state in _FREE)
    running = [
        (row.nodes or 1, max(0.0, _limit(row) - (row.elapsed_s or 0)))
        for row in queue
        if row.state in (JobState.RUNNING, JobState.SUSPENDED) and row.partition == partition
    ]
    pending = [
        row
        for row in queue
        if row.state is JobState.PENDING and row.in_queue and partition in (row.partition or "").split(",")
    ]
    pending.sort(key=lambda row: -(row.priority or 0.0))
    return plan_queue(idle, running, [(row.nodes or 1, _limit(row)) for row in pending])


def wait_of(shape: Shape, plan: FreeNodes) -> float | None:
    """Seconds until a job of the shape would start; None if it never would."""
    start = plan.earliest(shape.nodes, float(shape.walltime_s))
    return start if isfinite(start) and start < ENDLESS_S / 2 else None


def reserved(
    shape: Shape, start_s: float, reservations: Sequence[Reservation], nodes: Sequence[PartitionRow], now_s: float
) -> bool:
    """Whether a job that starts in `start_s` would meet a reservation, such as a maintenance, that leaves it too few nodes. A
    plan of the queue knows nothing of reservations, the scheduler's estimate does."""
    machine = sum(row.nodes or 0 for row in nodes if row.partition == shape.partition)
    begin, end = now_s + start_s, now_s + start_s + shape.walltime_s
    return any(
        (each.start is None or each.start.epoch is None or each.start.epoch < end)
        and (each.end is None or each.end.epoch is None or each.end.epoch > begin)
        and machine - (len(each.nodes) if each.node_count is None else each.node_count) < shape.nodes
        for each in reservations
    )


def _limit(row: JobRow) -> float:
    return float(row.time_limit_s) if row.time_limit_s else ENDLESS_S
