"""What a job does not train follows from own jobs; short shapes enter the plan once they are known to be worth it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.fakes import World
from tests.planner.test_reports import HOUR, MS, estimate, plan, report

from crosstrain.domain.ids import Instant, SiteName
from crosstrain.placement.overhead import RECENT, Begun, overhead, startups
from crosstrain.placement.shape import Shape
from crosstrain.placement.site_queue import QueueJob, QueueState, SiteQueue, new_queue

HOUR_MS = 3_600_000
TEN_MINUTES = {"partition": "gpu", "nodes": 1, "gpus": 4, "walltime_s": 600}
FIVE_MINUTES = {**TEN_MINUTES, "walltime_s": 300}


def queue_of(*starts: int, state: QueueState = QueueState.ENDED) -> SiteQueue:
    shape = Shape("gpu", 1, 4, HOUR)
    jobs = [QueueJob(f"run.lumi.{at}", "7", shape, state, Instant(at), Instant(at)) for at in starts]
    return replace(new_queue(SiteName("lumi")), jobs=tuple(jobs))


def begun(opened: int, seconds: float) -> Begun:
    return Begun(Instant(opened + 1000), Instant(round(opened + 1000 * seconds)))


def test_before_any_job_the_run_file_counts_and_before_that_an_assumption() -> None:
    nothing = overhead(queue_of(), [], [], 60.0)
    assert (nothing.startup_s, nothing.tail_s) == (300.0, 180.0) and "assumed, see `batch.startup_s`" in nothing.reason
    told = overhead(replace(queue_of(), startup_s=30.0, tail_s=5.0), [], [], 60.0)
    assert (told.startup_s, told.tail_s) == (30.0, 65.0) and "as the run file says" in told.reason


def test_what_was_measured_counts_more_than_what_was_told() -> None:
    starts = [HOUR_MS * number for number in range(1, 9)]
    lost = overhead(
        replace(queue_of(*starts), startup_s=30.0, tail_s=5.0),
        [begun(at, 40.0 + place) for place, at in enumerate(starts)],
        [7.0, 8.0, 90.0],
        60.0,
    )
    assert (lost.startup_s, lost.tail_s) == (45.0, 68.0)
    assert f"measured, {RECENT} jobs" in lost.reason and "measured, 3 phases" in lost.reason


@pytest.mark.parametrize("state", [QueueState.PENDING, QueueState.UNKNOWN, QueueState.CANCELLED])
def test_a_job_that_did_not_run_measures_nothing(state: QueueState) -> None:
    assert startups(queue_of(HOUR_MS, state=state), [begun(HOUR_MS, 40.0)]) == []


def test_a_session_belongs_to_the_job_that_ran_when_it_was_opened() -> None:
    queue = queue_of(2 * HOUR_MS, 4 * HOUR_MS)
    by_hand, second = begun(HOUR_MS, 10.0), begun(4 * HOUR_MS, 50.0)
    again = Begun(Instant(4 * HOUR_MS + 900_000), Instant(4 * HOUR_MS + 990_000))
    assert startups(queue, [by_hand, second, again]) == [50.0]


def test_a_clock_that_is_behind_makes_no_negative_start() -> None:
    assert startups(queue_of(HOUR_MS), [Begun(Instant(HOUR_MS - 30_000), Instant(HOUR_MS - 1000))]) == [0.0]


def offered(*shapes: dict[str, object]) -> list[dict[str, object]]:
    return [{"shape": shape, "tokens_per_s": 1e-1} for shape in shapes]


def test_a_short_shape_is_planned_once_its_jobs_are_known_to_start_soon(world: World) -> None:
    short = offered(FIVE_MINUTES)
    report(world, "first-one", offered=short, estimates=[estimate(FIVE_MINUTES, 0)])
    (entry,) = plan(world)["sites"]
    assert entry["role"] == "out" and "first 300 s (assumed, see `batch.startup_s`)" in entry["reason"]
    report(world, "told-it", offered=short, startup_s=20.0, tail_s=10.0)
    (entry,) = plan(world)["sites"]
    assert entry["role"] == "member" and entry["shape"]["walltime_s"] == 300
    assert "first 20 s (as the run file says)" in entry["shape_reason"]


def test_own_jobs_measure_start_and_end_and_the_same_again_changes_nothing(world: World) -> None:
    (site,) = world.begin("lumi")
    shapes = offered(FIVE_MINUTES, TEN_MINUTES)
    running = {"name": "run.lumi.1", "job_id": "7", "shape": TEN_MINUTES, "state": "running"}
    world.clock.advance(45_000)
    site.work()
    world.clock.advance(11_000)
    site.contribute(seconds=4.0)
    world.clock.advance(4000)
    report(
        world,
        "ran-one",
        offered=shapes,
        estimates=[estimate(FIVE_MINUTES, 0), estimate(TEN_MINUTES, 1)],
        jobs=[{**running, "submitted_age_ms": MS, "started_age_ms": 60_000}],
    )
    first = plan(world)["sites"][0]
    assert "first 45 s (measured, 1 job)" in first["shape_reason"]
    assert "(measured, 1 phase, and 60 s of margin)" in first["shape_reason"]
    again = plan(world)["sites"][0]
    assert again == first
