from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from crosstrain.errors import UsageError
from crosstrain.simulation.queues.backfill import Order, Scheduler, Workload
from crosstrain.simulation.queues.probes import HOUR_S, ProbeSpec, cached_probes, record_probes
from crosstrain.simulation.queues.published import cache_directory, traces_directory
from crosstrain.simulation.queues.swf import Trace, TraceJob
from crosstrain.simulation.queues.tryouts import Tryouts

SPEC = ProbeSpec(((1, HOUR_S), (8, 4 * HOUR_S)), warm_up_s=6 * HOUR_S, tail_s=6 * HOUR_S)


@pytest.fixture(scope="module")
def trace() -> Trace:
    rng, at, jobs = random.Random(7), 0.0, []
    for number in range(120):
        at += rng.expovariate(1 / 900)
        limit = rng.uniform(600, 5 * HOUR_S)
        jobs.append(TraceJob(number, at, rng.randint(1, 8), limit, limit * rng.uniform(0.1, 1), None))
    return Trace("drawn", "d" * 64, 16, tuple(jobs), {})


def test_probes_are_regular_and_leave_out_both_ends(trace: Trace) -> None:
    table = record_probes(trace, Order.FCFS, SPEC)
    assert np.diff(table.times_s).tolist() == pytest.approx([2 * HOUR_S] * (len(table.times_s) - 1))
    assert table.times_s[0] == trace.jobs[0].submit_s + 6 * HOUR_S
    assert table.times_s[-1] < trace.jobs[-1].submit_s - 6 * HOUR_S
    assert table.wait_s.shape == table.plan_s.shape == table.test_only_s.shape == (len(table.times_s), 2)


@pytest.mark.parametrize("order", Order)
def test_true_wait_is_that_of_the_same_job_in_the_log(trace: Trace, order: Order) -> None:
    at = trace.jobs[40].submit_s + 1
    work = Workload(trace.jobs, trace.nodes)
    tried = Tryouts(work, order)
    tried.advance(at)
    tried.submit([(1, 3600.0), (8, 4 * 3600.0), (16, 3600.0)])
    tried.finish()
    for number, (nodes, limit_s) in enumerate([(1, 3600.0), (8, 4 * 3600.0), (16, 3600.0)]):
        extra = TraceJob(-1, at, nodes, limit_s, limit_s, None)
        jobs = sorted([*trace.jobs, extra], key=lambda job: job.submit_s)
        alone = Scheduler(Workload(jobs, trace.nodes), order)
        alone.advance(1e9)
        assert tried.waits_s[number] == alone.started[jobs.index(extra)] - at


def test_estimate_of_the_scheduler_is_its_backlog_and_what_runs_before_enough_nodes_are_free(trace: Trace) -> None:
    table = record_probes(trace, Order.FCFS, SPEC)
    drain = table.test_only_s - table.backlog_s[:, None]
    assert (drain[:, 1] >= drain[:, 0]).all()
    assert drain.max() <= max(job.limit_s for job in trace.jobs)


def test_discount_is_node_time_used_over_requested_of_jobs_that_ended_in_48_hours() -> None:
    jobs = (
        TraceJob(1, 0, 4, 1000, 500, None),
        TraceJob(2, 0, 2, 1000, 1200, None),
        TraceJob(3, 300_000, 1, 100, 25, None),
        TraceJob(4, 400_000, 1, 100, 100, None),
    )
    spec = ProbeSpec(((1, 60),), every_s=100_000, warm_up_s=100_000, tail_s=1000)
    discounts = record_probes(Trace("t", "t", 8, jobs, {}), Order.FCFS, spec).discount
    assert discounts.tolist() == pytest.approx([(4 * 500 + 2 * 1000) / 6000, 1, 1], rel=1e-12)


def test_table_is_kept_and_a_damaged_one_is_made_again(trace: Trace, tmp_path: Path) -> None:
    made = cached_probes(trace, Order.FCFS, SPEC, tmp_path)
    (kept,) = tmp_path.iterdir()
    assert (cached_probes(trace, Order.FCFS, SPEC, tmp_path).wait_s == made.wait_s).all()
    kept.write_bytes(kept.read_bytes()[:100])
    assert (cached_probes(trace, Order.FCFS, SPEC, tmp_path).wait_s == made.wait_s).all()
    cached_probes(trace, Order.WFP, SPEC, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_log_that_is_too_short_for_a_probe_is_refused(trace: Trace) -> None:
    with pytest.raises(ValueError, match="too short for a probe"):
        record_probes(trace, Order.FCFS, ProbeSpec(SPEC.shapes))


def test_directories_are_chosen_by_argument_or_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSTRAIN_TRACES", str(tmp_path / "absent"))
    monkeypatch.setenv("CROSSTRAIN_CACHE", str(tmp_path / "cache"))
    assert traces_directory(tmp_path) == tmp_path
    assert cache_directory() == tmp_path / "cache"
    with pytest.raises(UsageError, match="expected job logs in"):
        traces_directory(None)
