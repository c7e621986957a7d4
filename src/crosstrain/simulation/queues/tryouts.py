"""Jobs that are tried out in a replay: each would have been alone with the log's jobs, and none of them disturbs the log.

A waiting job that is not the first in line changes nothing for anybody until it starts. So one replay serves all of them: at each pass over the queue it is
enough to look what each would have found when its turn came. Only one that comes to be the first in line and does not fit, and thus
gets a reservation, needs a copy of the scheduler in which it is really there, from then to its start.
"""

from __future__ import annotations

import numpy as np

from crosstrain.simulation.queues.backfill import Order, Scheduler, Turn, Workload, priorities


class Tryouts:
    """A replay and the jobs that wait beside it.

    Args:
        work: of the log.

    Attributes:
        machine: the replay of the log alone. It looks at its queue also whenever jobs are tried out.
        waits_s: number of a tried job, in the order of submission -> how long it waited.
    """

    def __init__(self, work: Workload, order: Order) -> None:
        self.machine = Scheduler(work, order)
        self.waits_s: dict[int, float] = {}
        self._count = 0
        self._numbers = np.zeros(0, dtype=np.int64)
        self._submit = np.zeros(0)
        self._nodes = np.zeros(0, dtype=np.int64)
        self._limit = np.zeros(0)

    def submit(self, shapes: list[tuple[int, float]]) -> None:
        """Jobs of these nodes and time limits are submitted now, each as if it were the only one.

        Raises:
            ValueError: one is larger than the machine.
        """
        if max(nodes for nodes, _ in shapes) > self.machine.work.machine_nodes:
            raise ValueError(f"expected at most the machine's {self.machine.work.machine_nodes} nodes, found {shapes}")
        more = len(shapes)
        self._numbers = np.append(self._numbers, np.arange(self._count, self._count + more))
        self._submit = np.append(self._submit, np.full(more, self.machine.now))
        self._nodes = np.append(self._nodes, [nodes for nodes, _ in shapes])
        self._limit = np.append(self._limit, [limit_s for _, limit_s in shapes])
        self._count += more
        self._pass()

    def advance(self, until_s: float) -> None:
        """Plays all events up to and including `until_s`."""
        while self.machine.next_event() <= until_s:
            self.machine.happen()
            self._pass()
        self.machine.now = until_s

    def finish(self) -> None:
        """Plays on until all jobs have ended and all that were tried out have started."""
        while self.machine.next_event() < np.inf:
            self.machine.happen()
            self._pass()

    def _pass(self) -> None:
        if not len(self._numbers):
            self.machine.start_jobs()
            return
        before = self.machine.fork()
        self._settle(before, self.machine.start_jobs())

    def _settle(self, before: Scheduler, turns: list[Turn]) -> None:
        """Looks who would have started in a pass, or got the reservation.

        Args:
            before: the scheduler before the pass.
            turns: of the pass, in their order.
        """
        now, fits = self.machine.now, np.zeros(len(self._numbers), dtype=np.bool_)
        reserved, waiting = fits.copy(), ~fits
        ranks = priorities(before.order, now, self._submit, self._nodes, self._limit)
        for turn in turns:
            mine = waiting & (ranks > turn.floor)
            fit = mine & (self._nodes <= turn.free)
            if turn.first:
                reserved |= mine & ~fit
            else:
                fit &= (self._limit <= turn.slack_s) | (self._nodes <= turn.spare)
            fits |= fit
            waiting &= ~mine
        for place in fits.nonzero()[0].tolist():
            self.waits_s[int(self._numbers[place])] = now - float(self._submit[place])
        for place in reserved.nonzero()[0].tolist():
            self.waits_s[int(self._numbers[place])] = before.wait_of(
                int(self._nodes[place]), float(self._limit[place]), float(self._submit[place])
            )
        if (done := fits | reserved).any():
            left = ~done
            self._numbers, self._submit = self._numbers[left], self._submit[left]
            self._nodes, self._limit = self._nodes[left], self._limit[left]
