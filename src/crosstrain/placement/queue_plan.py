"""An own plan of a queue that can be seen: when would a job of a shape start if everybody ran to their limit?

Conservative backfill (Feitelson and Weil, IPPS 1998): each waiting job, in the order of priority, gets the earliest time at which its nodes
are free for all of its time limit and delays nobody before it. Unlike the scheduler's own estimate for a new job, this knows that
short and small jobs slip into holes. Nodes count as alike, and later arrivals as last.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from math import inf


class FreeNodes:
    """Idle nodes as a step function of the seconds from now; the last step has no end.

    Args:
        free: idle nodes now.
        running: nodes and seconds until the time limit of each running job.
    """

    __slots__ = ("_free", "_times")

    def __init__(self, free: int, running: Iterable[tuple[int, float]]) -> None:
        self._times, self._free = [0.0], [free]
        for nodes, left_s in sorted(running, key=lambda job: job[1]):
            free += nodes
            if left_s > self._times[-1]:
                self._times.append(left_s)
                self._free.append(free)
            else:
                self._free[-1] = free

    def earliest(self, nodes: int, duration_s: float) -> float:
        """When `nodes` nodes are first free for `duration_s` seconds at a stretch; infinity if the machine is too small."""
        times, free = self._times, self._free
        start, last = 0, len(times)
        while start < last:
            if free[start] < nodes:
                start += 1
                continue
            end, place = times[start] + duration_s, start + 1
            while place < last and times[place] < end and free[place] >= nodes:
                place += 1
            if place == last or times[place] >= end:
                return times[start]
            start = place + 1
        return inf

    def take(self, start_s: float, nodes: int, duration_s: float) -> None:
        """Takes nodes that `earliest` found."""
        first, end = self._cut(start_s), self._cut(start_s + duration_s)
        for place in range(first, end):
            self._free[place] -= nodes

    def _cut(self, time_s: float) -> int:
        """The place of the step that begins at this time, made if there is none."""
        place = bisect_right(self._times, time_s) - 1
        if self._times[place] < time_s:
            place += 1
            self._times.insert(place, time_s)
            self._free.insert(place, self._free[place - 1])
        return place


def plan_queue(free: int, running: Iterable[tuple[int, float]], pending: Iterable[tuple[int, float]]) -> FreeNodes:
    """What is left after all waiting jobs got their place.

    Args:
        free: idle nodes now.
        running: nodes and seconds until the time limit of each running job.
        pending: nodes and time limit of each waiting job that nothing but the queue holds back, first in priority first. Jobs
            larger than the machine are passed over.
    """
    left = FreeNodes(free, running)
    for nodes, limit_s in pending:
        start = left.earliest(nodes, limit_s)
        if start < inf:
            left.take(start, nodes, limit_s)
    return left
