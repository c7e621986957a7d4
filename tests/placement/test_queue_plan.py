"""The own plan of a queue: by hand where jobs run to their limits, against a replay, and with run times of past jobs."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosstrain.placement import queue_plan
from crosstrain.placement.queue_plan import SAMPLES, Queue, QueueJob
from crosstrain.placement.run_times import PastRun, RunTimes
from crosstrain.simulation.queues.backfill import Order, Scheduler, Workload
from crosstrain.simulation.queues.swf import TraceJob

MACHINE = 12
AT_LIMITS = RunTimes()
Jobs = list[tuple[int, float]]


def uniform(seed: int = 0) -> Callable[[], float]:
    return random.Random(seed).random


def waits(free: int, running: Jobs, pending: Jobs, shapes: Jobs) -> list[float]:
    """Of a queue in which every job runs to its limit."""
    jobs = ([QueueJob(nodes, limit_s) for nodes, limit_s in some] for some in (running, pending))
    return Queue(free, *jobs, AT_LIMITS).waits(shapes, uniform())


def test_short_job_slips_into_the_hole_before_the_first_in_line() -> None:
    # 4 idle; 8 nodes come free at 100 and go to the job that waits for all twelve, until 300.
    assert waits(4, [(8, 100)], [(12, 200)], [(4, 100), (4, 101), (5, 1)]) == pytest.approx([0, 300, 300])


def test_job_on_nodes_that_the_first_in_line_leaves_over_may_be_long() -> None:
    assert waits(4, [(8, 100)], [(9, 200)], [(3, 1e6), (4, 1e6)]) == pytest.approx([0, 300])


def test_waiting_jobs_take_turns_in_the_order_of_priority() -> None:
    assert waits(0, [(12, 10)], [(12, 5), (12, 7), (6, 3)], [(12, 1), (6, 1)]) == pytest.approx([25, 22])


def test_waiting_job_that_does_not_delay_the_first_starts_before_it() -> None:
    # The six nodes behind the first in line start at once, so the shape finds no idle node until 10.
    assert waits(6, [(6, 10)], [(12, 5), (6, 10)], [(1, 1)]) == pytest.approx([15])


def test_job_without_a_limit_never_gives_its_nodes_back() -> None:
    assert waits(4, [(8, inf)], [], [(4, inf), (5, 1)]) == [0, inf]


def test_job_that_waits_for_more_than_the_machine_holds_nobody_back() -> None:
    assert waits(12, [], [(13, 10)], [(12, 1), (13, 1)]) == [0, inf]


def test_job_past_its_limit_counts_as_free_at_once() -> None:
    queue = Queue(0, [QueueJob(12, 100.0, "", 130.0)], [], AT_LIMITS)
    assert queue.waits([(12, 1)], uniform()) == [0]


def test_a_long_queue_is_played_fewer_times(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def counted() -> float:
        asked.append(0.0)
        return 0.5

    past = RunTimes([PastRun("a", 100, 0.5)])
    queue = Queue(1, [], [QueueJob(1, 100.0)] * 50, past)
    queue.waits([(1, 1)], counted)
    often = len(asked)
    monkeypatch.setattr(queue_plan, "MOST_PLAYED", 100)
    asked.clear()
    queue.waits([(1, 1)], counted)
    assert (often, len(asked)) == (50 * SAMPLES, 50 * 2)


def test_jobs_that_end_early_let_the_shape_start_early() -> None:
    past = [PastRun("a", 100, 0.25)] * 200
    queue = Queue(0, [QueueJob(12, 100.0, "a")], [QueueJob(12, 100.0, "a")], RunTimes(past))
    assert queue.waits([(12, 100)], uniform()) == pytest.approx([50])


jobs = st.lists(st.tuples(st.integers(1, MACHINE), st.integers(1, 60)), max_size=10)


@settings(max_examples=60, deadline=None)
@given(jobs, jobs, st.integers(1, MACHINE), st.integers(1, 60))
def test_queue_at_limits_is_played_as_a_first_come_first_served_replay_does(
    running: list[tuple[int, int]], pending: list[tuple[int, int]], nodes: int, limit_s: int
) -> None:
    fitting, taken = [], 0
    for size, left_s in running:
        if taken + size <= MACHINE:
            fitting.append((size, float(left_s)))
            taken += size
    queue: Jobs = [(size, float(limit)) for size, limit in pending]
    # In the replay the running jobs came first and started at once; the shape is its last job.
    everybody = [*fitting, *queue, (nodes, float(limit_s))]
    traced = [
        TraceJob(number, 0.0 if number < len(fitting) else 0.5, size, limit, limit, None)
        for number, (size, limit) in enumerate(everybody)
    ]
    replay = Scheduler(Workload(traced, MACHINE), Order.FCFS)
    replay.advance(1e6)
    elapsed = [QueueJob(size, limit, "", 0.5) for size, limit in fitting]
    waiting = [QueueJob(size, limit) for size, limit in queue]
    planned = Queue(MACHINE - taken, elapsed, waiting, AT_LIMITS).waits([(nodes, float(limit_s))], uniform())
    assert planned == pytest.approx([replay.started[len(traced) - 1] - 0.5])
