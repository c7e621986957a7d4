"""The replayed scheduler: queues by hand, and what must hold of every workload."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosstrain.simulation.queues.backfill import Order, Scheduler, Workload
from crosstrain.simulation.queues.probes import visible
from crosstrain.simulation.queues.slurm_estimate import backlog_s, drain_s
from crosstrain.simulation.queues.swf import TraceJob
from crosstrain.simulation.queues.tryouts import Tryouts

MACHINE = 10


def job(number: int, submit_s: float, nodes: int, limit_s: float, run_s: float | None = None) -> TraceJob:
    return TraceJob(number, submit_s, nodes, limit_s, limit_s if run_s is None else run_s, None)


def play(jobs: list[TraceJob], order: Order = Order.FCFS) -> Scheduler:
    scheduler = Scheduler(Workload(jobs, MACHINE), order)
    scheduler.advance(max(job.submit_s for job in jobs) + sum(job.limit_s + job.run_s for job in jobs))
    return scheduler


def test_short_job_starts_before_the_head_and_a_long_one_does_not() -> None:
    jobs = [job(1, 0, 6, 100), job(2, 1, 8, 100), job(3, 2, 4, 98), job(4, 3, 4, 99)]
    assert play(jobs).started == {0: 0, 1: 100, 2: 2, 3: 200}


def test_long_job_starts_on_nodes_that_the_head_leaves_over() -> None:
    jobs = [job(1, 0, 6, 100), job(2, 1, 8, 100), job(3, 2, 2, 1000), job(4, 3, 1, 1000)]
    assert play(jobs).started == {0: 0, 1: 100, 2: 2, 3: 200}


def test_early_end_lets_the_head_start_early() -> None:
    assert play([job(1, 0, 10, 100, 40), job(2, 5, 10, 10)]).started == {0: 0, 1: 40}


def test_job_past_its_limit_holds_its_nodes_until_it_ends() -> None:
    assert play([job(1, 0, 10, 100, 130), job(2, 5, 10, 10)]).started == {0: 0, 1: 130}


def test_wfp_prefers_large_jobs_that_waited_long_for_their_limit() -> None:
    jobs = [job(1, 0, 10, 100), job(2, 10, 10, 1000), job(3, 20, 10, 50)]
    assert play(jobs, Order.FCFS).started == {0: 0, 1: 100, 2: 1100}
    assert play(jobs, Order.WFP).started == {0: 0, 2: 100, 1: 150}


def test_wait_of_a_job_tried_out_leaves_the_queue_as_it_is() -> None:
    jobs = [job(1, 0, 6, 100, 60), job(2, 1, 8, 100, 50), job(3, 200, 1, 10)]
    scheduler = Scheduler(Workload(jobs, MACHINE), Order.FCFS)
    scheduler.advance(10)
    assert scheduler.wait_of(4, 90) == 0
    assert scheduler.wait_of(4, 91) == 60 + 50 - 10
    assert scheduler.wait_of(10, 10) == 60 + 50 - 10
    scheduler.advance(300)
    assert scheduler.started == play(jobs).started == {0: 0, 1: 60, 2: 200}


workloads = st.lists(
    st.tuples(st.integers(0, 300), st.integers(1, MACHINE), st.integers(1, 120), st.floats(0.05, 1.1)),
    min_size=2,
    max_size=25,
).map(
    # Limits with fractions of their own tell jobs apart.
    lambda drawn: [
        job(i, float(t), nodes, limit + i / 1000, (limit + i / 1000) * part)
        for i, (t, nodes, limit, part) in enumerate(sorted(drawn))
    ]
)


@settings(max_examples=60, deadline=None)
@given(workloads, st.sampled_from(Order))
def test_every_job_starts_once_never_before_its_submission_and_never_on_taken_nodes(
    jobs: list[TraceJob], order: Order
) -> None:
    started = play(jobs, order).started
    assert set(started) == set(range(len(jobs)))
    assert all(started[i] >= jobs[i].submit_s for i in started)
    for moment in started.values():
        taken = sum(j.nodes for i, j in enumerate(jobs) if started[i] <= moment < started[i] + j.run_s)
        assert taken <= MACHINE


@settings(max_examples=60, deadline=None)
@given(workloads)
def test_first_in_line_is_never_delayed_when_limits_are_exact(jobs: list[TraceJob]) -> None:
    exact = [job(j.number, j.submit_s, j.nodes, j.limit_s) for j in jobs]
    scheduler, promised = Scheduler(Workload(exact, MACHINE), Order.FCFS), []
    number = {j.limit_s: i for i, j in enumerate(exact)}
    while len(scheduler.started) < len(exact):
        scheduler.step()
        if waiting := scheduler.pending():
            nodes, limit = waiting[0]
            promised.append((number[limit], scheduler.now + drain_s(nodes, scheduler.free, scheduler.running())))
    assert all(scheduler.started[i] <= at + 1e-6 for i, at in promised)


def test_estimate_of_the_scheduler_by_hand() -> None:
    # 10 nodes: 4 idle, 4 until 50, 2 until 200. Two jobs wait: 6 nodes x 100 s and 2 nodes x 300 s, 1,200 node-seconds.
    running, pending = [(4, 50.0), (2, 200.0)], [(6, 100.0), (2, 300.0)]
    assert backlog_s(MACHINE, pending) == 120
    assert [drain_s(nodes, 4, running) for nodes in (1, 4, 5, 8, 9, 10)] == [0, 0, 50, 50, 200, 200]


def test_estimate_of_the_scheduler_is_blind_to_holes_that_the_plan_sees() -> None:
    jobs = [job(1, 0, 6, 100), job(2, 0, 8, 1000), job(3, 5000, 1, 10)]
    scheduler = Scheduler(Workload(jobs, MACHINE), Order.FCFS)
    scheduler.advance(0)
    assert drain_s(4, scheduler.free, scheduler.running()) + backlog_s(MACHINE, scheduler.pending()) == 800
    # Nothing has ended yet, so every job is taken to run to its limit.
    assert visible(scheduler).waits([(4, 100), (4, 101)], random.Random(1).random) == pytest.approx([0, 1100])


def test_users_whose_jobs_end_early_make_the_plan_shorter() -> None:
    past = [job(number, 10.0 * number, 10, 100, 10) for number in range(40)]
    scheduler = Scheduler(Workload([*past, job(40, 390, 10, 100, 10), job(41, 9000, 1, 10)], MACHINE), Order.FCFS)
    scheduler.advance(395)
    assert (len(scheduler.ended), scheduler.at_work(), scheduler.waiting()) == (39, [39], [40])
    assert visible(scheduler).waits([(10, 100)], random.Random(1).random) == pytest.approx([15])


tried = st.lists(st.tuples(st.integers(0, 400), st.integers(1, MACHINE), st.integers(1, 120)), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(workloads, st.sampled_from(Order), tried)
def test_job_tried_out_waits_as_long_as_the_same_job_in_the_log(
    jobs: list[TraceJob], order: Order, shapes: list[tuple[int, int, int]]
) -> None:
    tryouts, single = Tryouts(Workload(jobs, MACHINE), order), []
    for whole_s, nodes, limit_s in sorted(shapes):
        tryouts.advance(whole_s + 0.5)
        tryouts.submit([(nodes, float(limit_s))])
        later = sorted([*jobs, job(-1, whole_s + 0.5, nodes, limit_s)], key=lambda j: j.submit_s)
        single.append(later)
    tryouts.finish()
    for number, later in enumerate(single):
        place = next(i for i, j in enumerate(later) if j.number == -1)
        # With WFP, a look at the queue for one of several jobs can start others earlier.
        if order is Order.FCFS or len(shapes) == 1:
            assert tryouts.waits_s[number] == play(later, order).started[place] - later[place].submit_s
