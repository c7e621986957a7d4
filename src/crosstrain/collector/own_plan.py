"""The wait of a shape by an own plan of the visible queue (`placement.queue_plan`). Pure.

Only where other people's jobs can be seen: with PrivateData a queue looks empty and every wait would be nothing. Nodes that
are used without a visible job give that away. Jobs of other partitions on the same nodes count as long as they run, as nodes
that are not idle; when those come free is not known, so they count as never.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, isfinite

from crosstrain.batch.readings import JobRow, JobState, PartitionRow, Reservation
from crosstrain.placement.queue_plan import Queue, QueueJob
from crosstrain.placement.run_times import RunTimes
from crosstrain.placement.shape import Shape

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


def queue_of(
    partition: str, queue: Sequence[JobRow], nodes: Sequence[PartitionRow], run_times: RunTimes
) -> Queue | None:
    """The jobs of a partition as they can be played on; None if nothing is known of its nodes."""
    mine = [row for row in nodes if row.partition == partition]
    if not mine:
        return None
    idle = sum(row.nodes or 0 for row in mine if row.state in _FREE)
    running = [
        _job(row, float(row.elapsed_s or 0))
        for row in queue
        if row.state in (JobState.RUNNING, JobState.SUSPENDED) and row.partition == partition
    ]
    pending = [
        row
        for row in queue
        if row.state is JobState.PENDING and row.in_queue and partition in (row.partition or "").split(",")
    ]
    pending.sort(key=lambda row: -(row.priority or 0.0))
    return Queue(idle, running, [_job(row, 0.0) for row in pending], run_times)


def waits_of(shapes: Sequence[Shape], queue: Queue, uniform: Callable[[], float]) -> dict[Shape, float]:
    """Seconds until a job of each shape would start; those that never would are left out."""
    waits = queue.waits([(shape.nodes, float(shape.walltime_s)) for shape in shapes], uniform)
    return {shape: wait_s for shape, wait_s in zip(shapes, waits, strict=True) if isfinite(wait_s)}


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


def _job(row: JobRow, elapsed_s: float) -> QueueJob:
    limit_s = float(row.time_limit_s) if row.time_limit_s else inf
    return QueueJob(row.nodes or 1, limit_s, row.user or "", elapsed_s)
