"""A batch scheduler with EASY backfill, event by event (Lifka, JSSPP 1995; Mu'alem and Feitelson, TPDS 2001).

Jobs start in priority order while they fit. The first that does not fit gets a reservation at the earliest time at which
the running jobs, each taken to its time limit, leave enough nodes; a job behind it may start if it ends before that by its own limit
or takes only nodes that are left over then. Nodes are alike and a job has whole nodes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from enum import StrEnum
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from crosstrain.simulation.queues.swf import TraceJob

Array = npt.NDArray[np.float64]
Jobs = npt.NDArray[np.int64]


class Order(StrEnum):
    """Who comes first."""

    FCFS = "fcfs"
    """First come, first served."""
    WFP = "wfp"
    """(wait / limit)^3 x nodes, largest first: the utility of the Cobalt scheduler (Tang et al., Cluster 2009)."""


class Workload:
    """The jobs of a replay as arrays, with room behind them for one job that is tried out.

    Args:
        smallest: nodes of the smallest job that will be tried out.

    Attributes:
        count: jobs; the number `count` is that of the job that is tried out.
    """

    def __init__(self, jobs: Sequence[TraceJob], machine_nodes: int, smallest: int = 1) -> None:
        self.count = len(jobs)
        self.machine_nodes = machine_nodes
        self.submit = [job.submit_s for job in jobs] + [np.inf]
        self.nodes = [job.nodes for job in jobs] + [0]
        self.limit = [job.limit_s for job in jobs] + [0.0]
        self.run = [job.run_s for job in jobs] + [0.0]
        self.user = [job.user for job in jobs] + [-1]
        self.smallest = min(smallest, *self.nodes[:-1])
        self.submit_array = np.array(self.submit)
        self.nodes_array = np.array(self.nodes)
        self.limit_array = np.array(self.limit)

    def place_last(self, submit_s: float, nodes: int, limit_s: float) -> None:
        """Sets what the job number `count` is; it would run to its limit."""
        self.submit[-1] = self.submit_array[-1] = submit_s
        self.nodes[-1] = self.nodes_array[-1] = nodes
        self.limit[-1] = self.limit_array[-1] = self.run[-1] = limit_s


class Turn(NamedTuple):
    """What a job finds that is considered before any job of priority `floor` or less, in one pass over the queue.

    Attributes:
        free: idle nodes.
        first: whether it would be the first that waits: if it does not fit, it gets the reservation, and all is different.
        slack_s: otherwise, seconds within which it must end,
        spare: or nodes that it may take for longer.
    """

    floor: float
    free: int
    first: bool
    slack_s: float = 0.0
    spare: int = 0


class Scheduler:
    """The machine, its queue and its running jobs at one moment.

    Attributes:
        now: seconds since the log's first submission.
        free: idle nodes.
        started: job number -> when it started.
        ended: job numbers in the order of their ends.
    """

    __slots__ = ("_arriving", "_by_limit", "_ends", "_pending", "ended", "free", "now", "order", "started", "work")

    def __init__(self, work: Workload, order: Order) -> None:
        self.work = work
        self.order = order
        self.now = 0.0
        self.free = work.machine_nodes
        self.started: dict[int, float] = {}
        self.ended: list[int] = []
        self._arriving = 0
        self._by_limit: list[tuple[float, int]] = []
        """(when it reaches its limit, job) of the running jobs, in that order."""
        self._ends: list[tuple[float, float, int]] = []
        """Heap of (when it really ends, when it reaches its limit, job)."""
        self._pending: Jobs = np.zeros(0, dtype=np.int64)
        """In the order of submission. Replaced and never written to, so that copies may share it."""

    def fork(self) -> Scheduler:
        """A copy that goes its own way; it does not know when earlier jobs started and ended."""
        copy = Scheduler(self.work, self.order)
        copy.now, copy.free, copy._arriving = self.now, self.free, self._arriving
        copy._by_limit, copy._ends, copy._pending = self._by_limit.copy(), self._ends.copy(), self._pending
        return copy

    def running(self) -> list[tuple[int, float]]:
        """Nodes and seconds until the time limit of each running job, soonest first; 0 for one past its limit."""
        return [(self.work.nodes[job], max(0.0, end - self.now)) for end, job in self._by_limit]

    def pending(self) -> list[tuple[int, float]]:
        """Nodes and time limit of the waiting jobs, first in order first."""
        return [(self.work.nodes[job], self.work.limit[job]) for job in self.waiting()]

    def waiting(self) -> list[int]:
        """Numbers of the waiting jobs, first in order first."""
        jobs: list[int] = self._pending[np.argsort(-self._priorities(), kind="stable")].tolist()
        return jobs

    def at_work(self) -> list[int]:
        """Numbers of the running jobs, the one that reaches its limit first first."""
        return [job for _, job in self._by_limit]

    def next_event(self) -> float:
        """When the next job ends or is submitted; infinity if none does."""
        end = self._ends[0][0] if self._ends else np.inf
        return min(end, self.work.submit[self._arriving]) if self._arriving < self.work.count else end

    def advance(self, until_s: float) -> None:
        """Plays all events up to and including `until_s`."""
        while self.next_event() <= until_s:
            self.step()
        self.now = until_s

    def step(self) -> list[Turn]:
        """Plays the events of the next moment, then starts what may start; see `start_jobs`."""
        self.happen()
        return self.start_jobs()

    def happen(self) -> None:
        """Plays the events of the next moment, without starting anything."""
        self.now = self.next_event()
        while self._ends and self._ends[0][0] <= self.now:
            _, limit_end, job = heappop(self._ends)
            del self._by_limit[bisect_left(self._by_limit, (limit_end, job))]
            self.free += self.work.nodes[job]
            self.ended.append(job)
        first = self._arriving
        while self._arriving < self.work.count and self.work.submit[self._arriving] <= self.now:
            self._arriving += 1
        if self._arriving > first:
            self._pending = np.concatenate([self._pending, np.arange(first, self._arriving)])

    def wait_of(self, nodes: int, limit_s: float, submit_s: float | None = None) -> float:
        """How long a job waits that is, or was at `submit_s`, submitted beside the others; this scheduler stays as it is.

        Raises:
            ValueError: the machine is smaller than that.
        """
        if nodes > self.work.machine_nodes:
            raise ValueError(f"{nodes} nodes are more than the machine's {self.work.machine_nodes}")
        submit_s, job = self.now if submit_s is None else submit_s, self.work.count
        self.work.place_last(submit_s, nodes, limit_s)
        fork = self.fork()
        place = int(np.searchsorted(self.work.submit_array[fork._pending], submit_s, side="right"))
        fork._pending = np.concatenate([fork._pending[:place], [job], fork._pending[place:]])
        fork.start_jobs()
        while job not in fork.started:
            fork.step()
        return fork.started[job] - submit_s

    def start_jobs(self) -> list[Turn]:
        """Starts what may start; says what another job would have found, whenever in the pass its turn had come."""
        turns = []
        while self.free >= self.work.smallest:
            if not len(self._pending):
                turns.append(Turn(-np.inf, self.free, True))
                break
            priorities = self._priorities()
            head = int(priorities.argmax())
            turns.append(Turn(float(priorities[head]), self.free, True))
            if self.work.nodes[self._pending[head]] > self.free:
                self._backfill(priorities, head, turns)
                break
            self._start([head])
        return turns

    def _backfill(self, priorities: Array, head: int, turns: list[Turn]) -> None:
        """Starts jobs behind the head that do not delay it."""
        shadow_s, spare = self._reservation(self.work.nodes[self._pending[head]])
        slack_s, free, starting = shadow_s - self.now, self.free, []
        nodes, limits = self.work.nodes_array[self._pending], self.work.limit_array[self._pending]
        fits = (nodes <= free) & ((limits <= slack_s) | (nodes <= spare))
        fits[head] = False
        places = fits.nonzero()[0]
        for place in places[np.argsort(-priorities[places], kind="stable")].tolist():
            job = int(self._pending[place])
            size, in_time = self.work.nodes[job], self.work.limit[job] <= slack_s
            if size <= free and (in_time or size <= spare):
                turns.append(Turn(float(priorities[place]), free, False, slack_s, spare))
                spare -= 0 if in_time else size
                free -= size
                starting.append(place)
        turns.append(Turn(-np.inf, free, False, slack_s, spare))
        if starting:
            self._start(starting)

    def _reservation(self, nodes: int) -> tuple[float, int]:
        """The earliest time at which `nodes` are free if running jobs take their limits, and how many are then left over."""
        free = self.free
        for end, job in self._by_limit:
            free += self.work.nodes[job]
            if free >= nodes:
                return max(end, self.now), free - nodes
        raise AssertionError(f"{nodes} nodes are never free on a machine of {self.work.machine_nodes}")

    def _start(self, places: list[int]) -> None:
        """Starts the waiting jobs at these places."""
        work, stay = self.work, np.ones(len(self._pending), dtype=np.bool_)
        for place in places:
            job, stay[place] = int(self._pending[place]), False
            limit_end = self.now + work.limit[job]
            self.started[job] = self.now
            self.free -= work.nodes[job]
            insort(self._by_limit, (limit_end, job))
            heappush(self._ends, (self.now + work.run[job], limit_end, job))
        self._pending = self._pending[stay]

    def _priorities(self) -> Array:
        """Of the waiting jobs, in their order; of equals the first submitted comes first."""
        work, jobs = self.work, self._pending
        return priorities(self.order, self.now, work.submit_array[jobs], work.nodes_array[jobs], work.limit_array[jobs])


def priorities(order: Order, now_s: float, submit_s: Array, nodes: Jobs, limit_s: Array) -> Array:
    """Priorities of jobs, shape (n,); larger comes first."""
    if order is Order.FCFS:
        return np.asarray(-submit_s)
    aged = (now_s - submit_s) / limit_s
    return np.asarray(aged * aged * aged * nodes)
