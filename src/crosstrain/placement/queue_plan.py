"""An own plan of a queue that can be seen: when would a job of a shape start if jobs ran as long as such jobs did before?

The queue is played until then several times, each time with other run times (as Smith, Taylor and Foster did with one, JSSPP 1999),
and the mean counts. What is played is backfill as EASY does it (Lifka, JSSPP 1995): jobs start in the order of their priority; the first
that does not fit is promised the time at which its nodes are free by the time limits of the running jobs, and those behind it may start
if they do not put that off. Unlike the scheduler's own estimate for a new job, this knows that short and small jobs slip into holes, and that
jobs end before their limits. Nodes count as alike, priorities keep their order, later arrivals come last.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf

from crosstrain.placement.run_times import RunTimes

SAMPLES = 12
"""Times that a queue is played."""
MOST_PLAYED = 20_000
"""Waiting jobs that are played in all samples together; a longer queue is played fewer times."""
MOST_LOOKED_AT = 500
"""Waiting jobs that are looked at whenever one ends, as Slurm's `bf_max_job_test` bounds it."""


@dataclass(frozen=True, slots=True)
class QueueJob:
    """A job of the queue.

    Attributes:
        nodes: of it.
        limit_s: its time limit; infinite if it has none.
        owner: as `PastRun` names it.
        elapsed_s: since its start; 0 while it waits.
    """

    nodes: int
    limit_s: float
    owner: str = ""
    elapsed_s: float = 0.0

    @property
    def left_s(self) -> float:
        """Seconds until its limit."""
        return max(0.0, self.limit_s - self.elapsed_s)


@dataclass(frozen=True, slots=True)
class Queue:
    """What can be seen of a partition.

    Attributes:
        free: idle nodes.
        running: jobs that run.
        pending: jobs that nothing but the queue holds back, first in priority first. Those that are larger than the machine
            are passed over.
        run_times: how long jobs run.
    """

    free: int
    running: Sequence[QueueJob]
    pending: Sequence[QueueJob]
    run_times: RunTimes

    def waits(self, shapes: Sequence[tuple[int, float]], uniform: Callable[[], float]) -> list[float]:
        """Seconds until a job of each shape would start, if it alone were submitted now and came last; infinity if it never
        would.

        Args:
            shapes: nodes and walltime in seconds.
            uniform: makes uniform numbers in [0, 1), for run times.
        """
        machine = self.free + sum(job.nodes for job in self.running)
        pending = [job for job in self.pending if job.nodes <= machine]
        samples = max(1, min(SAMPLES, MOST_PLAYED // max(1, len(pending))))
        starts = [_Course(self, pending, uniform).starts(shapes) for _ in range(samples)]
        return [sum(each) / samples for each in zip(*starts, strict=True)]


class _Course:
    """One way that things may go on, from now on.

    Args:
        pending: jobs of the queue that the machine can hold.
    """

    def __init__(self, queue: Queue, pending: Sequence[QueueJob], uniform: Callable[[], float]) -> None:
        draw = queue.run_times.draw
        self.now, self.free = 0.0, queue.free
        self._pending = [(job.nodes, job.limit_s, draw(job.owner, job.limit_s, 0.0, uniform)) for job in pending]
        """Nodes, limit and run time."""
        self._by_limit = sorted((job.left_s, job.nodes) for job in queue.running)
        """When each running job reaches its limit, and its nodes."""
        self._ends = [
            (draw(job.owner, job.limit_s, job.elapsed_s, uniform) - job.elapsed_s, job.left_s, job.nodes)
            for job in queue.running
        ]
        """Heap of (when it really ends, when it reaches its limit, nodes)."""
        heapify(self._ends)

    def starts(self, shapes: Sequence[tuple[int, float]]) -> list[float]:
        """When each shape starts. As it comes last, it changes nothing for anybody before that, so one course serves all."""
        found, waiting = [inf] * len(shapes), set(range(len(shapes)))
        while True:
            slack_s, spare = self._start_jobs()
            for place in sorted(waiting):
                nodes, limit_s = shapes[place]
                if nodes <= self.free and (limit_s <= slack_s or nodes <= spare):
                    found[place] = self.now
                    waiting.remove(place)
            if not waiting or not self._ends or self._ends[0][0] == inf:
                return found
            self._pass_to_next_end()

    def _pass_to_next_end(self) -> None:
        self.now = self._ends[0][0]
        while self._ends and self._ends[0][0] <= self.now:
            _, limit_end, nodes = heappop(self._ends)
            del self._by_limit[bisect_left(self._by_limit, (limit_end, nodes))]
            self.free += nodes

    def _start_jobs(self) -> tuple[float, int]:
        """Starts what may start. Returns seconds within which a last job must end, and nodes that it may have for longer."""
        pending, first = self._pending, 0
        while first < len(pending) and pending[first][0] <= self.free:
            self._start(pending[first])
            first += 1
        del pending[:first]
        if not pending:
            return inf, self.free
        promised_s, spare = self._promise(pending[0][0])
        slack_s, started = promised_s - self.now, list[int]()
        for place in range(1, min(len(pending), MOST_LOOKED_AT)):
            if self.free == 0:
                break
            nodes, limit_s, _ = pending[place]
            if nodes <= self.free and (limit_s <= slack_s or nodes <= spare):
                spare -= 0 if limit_s <= slack_s else nodes
                self._start(pending[place])
                started.append(place)
        for place in reversed(started):
            del pending[place]
        return slack_s, spare

    def _start(self, job: tuple[int, float, float]) -> None:
        nodes, limit_s, run_s = job
        self.free -= nodes
        insort(self._by_limit, (self.now + limit_s, nodes))
        heappush(self._ends, (self.now + run_s, self.now + limit_s, nodes))

    def _promise(self, nodes: int) -> tuple[float, int]:
        """When `nodes` are free if running jobs take their limits, and how many are then left over."""
        free = self.free
        for end, size in self._by_limit:
            free += size
            if free >= nodes:
                return max(end, self.now), free - nodes
        raise AssertionError(f"{nodes} nodes are never free")
