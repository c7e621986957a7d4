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
        self.smallest = min(smallest, *self.nodes[:-1])
        self.submit_array = np.array(self.submit)
        self.nodes_array = np.array(self.nodes)
        self.limit_array = np.array(self.limit)

    def try_out(self, submit_s: float, nodes: int, limit_s: float) -> None:
        """Sets what the job number `count` is; it would run to its limit."""
        self.submit[-1] = self.submit_array[-1] = submit_s
        self.nodes[-1] = self.nodes_array[-1] = nodes
        self.limit[-1] = self.limit_array[-1] = self.run[-1] = limit_s


class Scheduler:
    """The machine, its queue and its running jobs at one moment.

    Attributes:
        now: seconds since the log's first submission.
        free: idle nodes.
        started: job number -> when it started.
    """

    __slots__ = ("_arriving", "_by_limit", "_ends", "_order", "_pending", "free", "now", "started", "work")

    def __init__(self, work: Workload, order: Order) -> None:
        self.work = work
        self.now = 0.0
        self.free = work.machine_nodes
        self.started: dict[int, float] = {}
        self._order = order
        self._arriving = 0
        self._by_limit: list[tuple[float, int]] = []
        """(when it reaches its limit, job) of the running jobs, in that order."""
        self._ends: list[tuple[float, float, int]] = []
        """Heap of (when it really ends, when it reaches its limit, job)."""
        self._pending: Jobs = np.zeros(0, dtype=np.int64)
        """In the order of submission. Replaced and never written to, so that copies may share it."""

    def fork(self) -> Scheduler:
        """A copy that goes its own way; it does not know when earlier jobs started."""
        copy = Scheduler(self.work, self._order)
        copy.now, copy.free, copy._arriving = self.now, self.free, self._arriving
        copy._by_limit, copy._ends, copy._pending = self._by_limit.copy(), self._ends.copy(), self._pending
        return copy

    def running(self) -> list[tuple[int, float]]:
        """Nodes and seconds until the time limit of each running job, soonest first; 0 for one past its limit."""
        return [(self.work.nodes[job], max(0.0, end - self.now)) for end, job in self._by_limit]

    def pending(self) -> list[tuple[int, float]]:
        """Nodes and time limit of the waiting jobs, first in order first."""
        jobs = self._pending[np.argsort(-self._priorities(), kind="stable")].tolist()
        return [(self.work.nodes[job], self.work.limit[job]) for job in jobs]

    def next_event(self) -> float:
        """When the next job ends or is submitted; infinity if none does."""
        end = self._ends[0][0] if self._ends else np.inf
        return min(end, self.work.submit[self._arriving]) if self._arriving < self.work.count else end

    def advance(self, until_s: float) -> None:
        """Plays all events up to and including `until_s`."""
        while self.next_event() <= until_s:
            self.step()
        self.now = until_s

    def finish(self) -> None:
        """Plays on until all jobs have ended."""
        while self.next_event() < np.inf:
            self.step()

    def step(self) -> None:
        """Plays the events of the next moment, then starts what may start."""
        self.now = self.next_event()
        while self._ends and self._ends[0][0] <= self.now:
            _, limit_end, job = heappop(self._ends)
            del self._by_limit[bisect_left(self._by_limit, (limit_end, job))]
            self.free += self.work.nodes[job]
        first = self._arriving
        while self._arriving < self.work.count and self.work.submit[self._arriving] <= self.now:
            self._arriving += 1
        if self._arriving > first:
            self._pending = np.concatenate([self._pending, np.arange(first, self._arriving)])
        self._start_jobs()

    def wait_of(self, nodes: int, limit_s: float) -> float:
        """How long a job would wait that is submitted now, in seconds; this scheduler stays as it is.

        Raises:
            ValueError: the machine is smaller than that.
        """
        if nodes > self.work.machine_nodes:
            raise ValueError(f"{nodes} nodes are more than the machine's {self.work.machine_nodes}")
        self.work.try_out(self.now, nodes, limit_s)
        fork, job = self.fork(), self.work.count
        fork._pending = np.append(fork._pending, job)
        fork._start_jobs()
        while job not in fork.started:
            fork.step()
        return fork.started[job] - self.now

    def _start_jobs(self) -> None:
        while len(self._pending) and self.free >= self.work.smallest:
            priorities = self._priorities()
            head = int(priorities.argmax())
            if self.work.nodes[self._pending[head]] > self.free:
                self._backfill(priorities, head)
                return
            self._start([head])

    def _backfill(self, priorities: Array, head: int) -> None:
        """Starts jobs behind the head that do not delay it."""
        shadow_s, spare = self._reservation(self.work.nodes[self._pending[head]])
        nodes, limits = self.work.nodes_array[self._pending], self.work.limit_array[self._pending]
        fits = (nodes <= self.free) & ((limits <= shadow_s - self.now) | (nodes <= spare))
        fits[head] = False
        places = fits.nonzero()[0]
        if not len(places):
            return
        free, starting = self.free, []
        for place in places[np.argsort(-priorities[places], kind="stable")].tolist():
            job = int(self._pending[place])
            size, in_time = self.work.nodes[job], self.work.limit[job] <= shadow_s - self.now
            if size <= free and (in_time or size <= spare):
                spare -= 0 if in_time else size
                free -= size
                starting.append(place)
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
        if self._order is Order.FCFS:
            return -self.work.submit_array[self._pending]
        work, jobs = self.work, self._pending
        aged = (self.now - work.submit_array[jobs]) / work.limit_array[jobs]
        return np.asarray(aged * aged * aged * work.nodes_array[jobs])
