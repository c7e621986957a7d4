"""The state that a collector would have in a replay: what it knows, and when."""

from __future__ import annotations

import numpy as np

from crosstrain.placement.forecast import Basis
from crosstrain.placement.predict import forecast
from crosstrain.simulation.queues.observed import instant, observe, shapes_of
from crosstrain.simulation.queues.probes import HOUR_S, ProbeSpec, ProbeTable


def drawn_table(days: int, factor: float) -> ProbeTable:
    rng, rows = np.random.default_rng(5), 12 * days
    estimate = HOUR_S * rng.uniform(2, 40, (rows, 2))
    times = np.arange(rows, dtype=np.float64) * 2 * HOUR_S
    spec = ProbeSpec(((1, HOUR_S), (8, 4 * HOUR_S)))
    return ProbeTable(spec, times, estimate, estimate[:, 0], 0.5 * estimate, factor * estimate, np.full(rows, 0.6))


def test_only_waits_of_jobs_that_have_started_are_known() -> None:
    table, most = drawn_table(10, 0.5), 0
    for moment in observe(table, "drawn", False):
        for shape in shapes_of(table):
            held = moment.site.of(shape)
            assert all(wait.known_at <= moment.now for wait in held.waits)
            assert all(job.submitted_at < moment.now for job in held.open)
            most = max(most, len(held.open))
    assert most > 0


def test_one_job_of_each_shape_is_submitted_a_day_and_its_wait_is_that_of_the_table() -> None:
    table = drawn_table(10, 0.1)
    *_, last = observe(table, "drawn", False)
    for column, shape in enumerate(shapes_of(table)):
        held = last.site.of(shape)
        at = [wait.submitted_at for wait in held.waits] + [job.submitted_at for job in held.open]
        assert sorted(instant // 86_400_000 for instant in at) == list(range(10))
        true = {instant(t): table.wait_s[row, column] for row, t in enumerate(table.times_s.tolist())}
        assert all(abs(wait.wait_s - true[wait.submitted_at]) < 0.002 for wait in held.waits)


def test_plan_is_used_only_where_the_queue_can_be_seen() -> None:
    table = drawn_table(20, 0.25)
    for visible, basis in ((False, Basis.TEST_ONLY), (True, Basis.PLAN)):
        *_, last = observe(table, "drawn", visible)
        made = forecast(last.site, shapes_of(table)[0], last.now)
        assert made.basis is basis
        assert abs(made.point_s - table.wait_s[-1, 0]) < 0.02 * table.wait_s[-1, 0]
