"""Run times that are drawn from past ones."""

from __future__ import annotations

import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstrain.placement.run_times import BACKING, NEWEST_OF_KIND, PastRun, RunTimes

HOUR = 3600.0


def drawn(times: RunTimes, owner: str, limit_s: float, elapsed_s: float = 0.0, count: int = 4000) -> list[float]:
    uniform = random.Random(1).random
    return [times.draw(owner, limit_s, elapsed_s, uniform) for _ in range(count)]


def test_without_past_runs_jobs_run_to_their_limit() -> None:
    assert RunTimes().draw("a", HOUR, 0.0, random.Random(1).random) == HOUR
    assert RunTimes().draw("a", HOUR, HOUR + 60, random.Random(1).random) == HOUR + 60


def test_owner_with_many_runs_of_a_limit_is_drawn_from_most() -> None:
    runs = 16
    past = [PastRun("b", HOUR, 1.0)] * 400 + [PastRun("a", HOUR, 0.25)] * runs
    own = fmean(run_s == 0.25 * HOUR for run_s in drawn(RunTimes(past), "a", HOUR))
    # With this limit, else with any, else anybody's.
    missed = BACKING / (runs + BACKING)
    assert own == pytest.approx(1 - missed**2, abs=0.03)
    assert fmean(run_s == 0.25 * HOUR for run_s in drawn(RunTimes(past), "c", HOUR)) < 0.1


def test_other_limits_of_an_owner_tell_more_than_other_owners() -> None:
    past = [PastRun("b", HOUR, 1.0)] * 400 + [PastRun("a", 8 * HOUR, 0.5)] * 16
    assert fmean(run_s == HOUR for run_s in drawn(RunTimes(past), "a", 2 * HOUR)) > 0.75


def test_old_habits_are_forgotten() -> None:
    past = [PastRun("a", HOUR, 1.0)] * 400 + [PastRun("a", HOUR, 0.5)] * NEWEST_OF_KIND
    assert fmean(run_s == 0.5 * HOUR for run_s in drawn(RunTimes(past), "a", HOUR)) > 0.9


def test_job_that_ran_already_runs_longer_than_that() -> None:
    past = [PastRun("a", HOUR, share / 10) for share in range(1, 10)]
    assert set(drawn(RunTimes(past), "a", HOUR, 0.75 * HOUR)) == {0.8 * HOUR, 0.9 * HOUR}
    assert set(drawn(RunTimes(past), "a", HOUR, 0.95 * HOUR)) == {HOUR}


runs = st.lists(st.tuples(st.sampled_from("abc"), st.floats(60, 1e6), st.floats(1e-6, 3)), max_size=20)


@given(runs, st.sampled_from("abcd"), st.floats(60, 1e6), st.floats(0, 2), st.integers(0, 100))
def test_run_time_is_between_what_it_ran_and_its_limit(
    past: list[tuple[str, float, float]], owner: str, limit_s: float, ran: float, seed: int
) -> None:
    run_s = RunTimes(PastRun(*run) for run in past).draw(owner, limit_s, ran * limit_s, random.Random(seed).random)
    assert ran * limit_s <= run_s <= max(limit_s, ran * limit_s)
