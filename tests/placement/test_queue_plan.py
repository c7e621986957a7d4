from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from crosstrain.placement.queue_plan import FreeNodes, plan_queue

MACHINE = 12
jobs = st.lists(st.tuples(st.integers(1, 4), st.floats(0.5, 50)), max_size=12)


def test_job_gets_the_first_hole_that_is_long_enough() -> None:
    # 4 idle; 8 nodes come free at 100 and are taken from then to 300 by the job that waits for all twelve.
    left = plan_queue(4, [(8, 100.0)], [(12, 200.0)])
    assert left.earliest(4, 100) == 0
    assert left.earliest(4, 100.5) == 300
    assert left.earliest(5, 1) == 300


def test_waiting_jobs_take_turns_in_the_order_of_priority() -> None:
    left = plan_queue(0, [(12, 10.0)], [(12, 5.0), (12, 7.0), (6, 3.0)])
    assert left.earliest(12, 1) == 25
    assert left.earliest(6, 1) == 22


def test_job_without_a_limit_never_gives_its_nodes_back() -> None:
    left = plan_queue(4, [(8, inf)], [])
    assert left.earliest(4, inf) == 0
    assert left.earliest(5, 1) == inf


def test_job_that_waits_for_more_than_the_machine_holds_nobody_back() -> None:
    assert plan_queue(12, [], [(13, 10.0)]).earliest(12, 1) == 0


def test_job_past_its_limit_counts_as_free() -> None:
    assert FreeNodes(0, [(12, 0.0)]).earliest(12, 1) == 0


@given(jobs, jobs, st.integers(1, MACHINE), st.floats(0.5, 50))
def test_shape_is_placed_where_its_nodes_are_free_all_the_time(
    running: list[tuple[int, float]], pending: list[tuple[int, float]], nodes: int, limit_s: float
) -> None:
    taken = 0
    fitting = []
    for size, left_s in running:
        if taken + size <= MACHINE:
            fitting.append((size, left_s))
            taken += size
    left = plan_queue(MACHINE - taken, fitting, pending)
    start = left.earliest(nodes, limit_s)
    left.take(start, nodes, limit_s)
    # Had it taken a node too many, the machine would be short of it for a while and no longer whole until after that.
    assert left.earliest(MACHINE, 1e9) >= start + limit_s
    assert all(left.earliest(0, at) == 0 for at in (1.0, 1e9))
