"""Chains of jobs: waits, depth of the queue, awards, jobs that are there already."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.placement.queues import HOUR, NOW, certain, option, site, spread

from crosstrain.domain.ids import Instant
from crosstrain.placement.chain import Chains, Curve
from crosstrain.placement.draws import FEW, draws
from crosstrain.placement.offer import Job, JobState, SiteOffer
from crosstrain.placement.shape import Shape
from crosstrain.placement.usual import FADES_S

LONG = 1000 * HOUR


def play(where: SiteOffer, depth: int, most_jobs: int = 5, horizon_s: float = LONG) -> Curve:
    return Chains(where, where.options[0], horizon_s, NOW).play(depth, lambda _: 0.5, most_jobs)


def in_hours(seconds: list[float]) -> list[float]:
    return [each / HOUR for each in seconds]


@pytest.mark.parametrize(
    ("depth", "begins"),
    [
        (0, [3.0, 14.0, 25.0, 36.0, 47.0]),  # every job waits its 3 hours behind the one before
        (1, [3.0, 11.0, 19.0, 27.0, 35.0]),  # 3 hours of waiting pass while the 8 hours before run
    ],
)
def test_a_short_wait_costs_nothing_once_a_job_is_queued_ahead(depth: int, begins: list[float]) -> None:
    curve = play(site("one", option(certain(3 * HOUR))), depth)
    assert in_hours(curve.begins) == begins


@pytest.mark.parametrize(
    ("depth", "begins"), [(1, [20.0, 40.0, 60.0]), (2, [20.0, 28.0, 40.0]), (3, [20.0, 28.0, 36.0])]
)
def test_a_long_wait_needs_several_jobs_ahead(depth: int, begins: list[float]) -> None:
    curve = play(site("one", option(certain(20 * HOUR))), depth, most_jobs=3)
    assert in_hours(curve.begins) == begins


def test_start_up_and_tail_are_not_training() -> None:
    curve = play(site("one", option(certain(0.0)), startup_s=600.0, tail_s=300.0), 1)
    assert curve.begins[:2] == [600.0, 8 * HOUR + 600] and curve.ends[0] == 8 * HOUR - 300
    assert curve.at(8 * HOUR) == pytest.approx(400.0 * (8 * HOUR - 900))


def test_a_job_that_is_shorter_than_its_start_up_trains_nothing_and_is_still_charged() -> None:
    curve = play(site("one", option(certain(0.0), hours=0.25), startup_s=1000.0), 1)
    assert curve.begins == [] and curve.at(LONG) == 0.0 and curve.active_s(LONG) == 0.0


def test_the_award_ends_the_chain() -> None:
    three = play(site("one", option(certain(0.0)), node_hours_left=100.0), 1)
    assert len(three.begins) == 3 and three.node_hours[-1] == 96.0
    cut = play(site("one", option(certain(0.0)), award_ends=Instant(NOW + 12 * 3_600_000)), 1)
    assert in_hours(cut.ends) == [8.0, 12.0] and cut.node_hours[-1] == 48.0


def test_jobs_that_are_there_come_first() -> None:
    shape = Shape("gpu", 4, 4, 8 * 3600)
    jobs = (
        Job("queued", shape, JobState.PENDING, Instant(NOW - 1000), certain(2 * HOUR)),
        Job("runs", shape, JobState.RUNNING, Instant(NOW - 5 * 3_600_000)),
    )
    curve = play(site("one", option(certain(30 * HOUR)), jobs=jobs, startup_s=600.0), 1, most_jobs=3)
    # 3 hours of the running one are left; then the queued one; the next is submitted when that starts.
    assert curve.begins == [0.0, 3 * HOUR + 600, 33 * HOUR + 600]


def test_what_was_not_played_goes_on_at_the_mean_pace_within_the_award() -> None:
    where = site("one", option(certain(3 * HOUR), hours=1.0))
    played, cut = play(where, 0, most_jobs=100), play(where, 0, most_jobs=10)
    assert cut.at(300 * HOUR) == pytest.approx(played.at(300 * HOUR), rel=0.02)
    poor = play(site("one", option(certain(3 * HOUR), hours=1.0), node_hours_left=60.0), 0, most_jobs=10)
    assert poor.at(LONG) == pytest.approx(15 * 400 * HOUR)


@given(
    median=st.floats(0.0, 100 * HOUR),
    hours=st.floats(0.5, 48.0),
    depth=st.integers(0, 3),
    sample=st.integers(0, FEW - 1),
    startup=st.floats(0.0, 3000.0),
)
def test_jobs_of_a_chain_never_overlap_and_depth_never_hurts(
    median: float, hours: float, depth: int, sample: int, startup: float
) -> None:
    where = site("one", option(spread(median + 1.0), hours=hours), startup_s=startup, tail_s=60.0)
    chains = Chains(where, where.options[0], LONG, NOW)
    shallow, deep = (chains.play(each, draws(2, sample, FEW)) for each in (depth, depth + 1))
    for curve in (shallow, deep):
        for end, begin in zip(curve.ends, curve.begins[1:], strict=False):
            assert end <= begin
        amounts = [curve.at(LONG * i / 50) for i in range(51)]
        assert amounts == sorted(amounts)
    for seconds in (x * HOUR for x in (1, 10, 50, 100)):
        if not shallow.begins or seconds < min(shallow.ends[-1], deep.ends[-1]):
            assert deep.at(seconds) >= shallow.at(seconds) * (1 - 1e-9)


def test_the_later_a_job_is_submitted_the_more_of_its_wait_is_the_usual_one() -> None:
    today, usual = 2 * HOUR, 40 * HOUR
    chosen = replace(option(certain(today)), usual=certain(usual))
    curve = play(site("one", chosen), 1, most_jobs=30)
    # Two are submitted at once, and the third when the second starts.
    assert curve.begins[0] == today
    before = curve.begins[1]
    share = exp(-before / FADES_S)
    assert curve.begins[2] == pytest.approx(before + share * today + (1 - share) * usual)
    last = curve.begins[-1] - curve.begins[-2]
    assert last == pytest.approx(usual, rel=1e-6)


def test_without_a_history_all_jobs_wait_as_today() -> None:
    curve = play(site("one", option(certain(20 * HOUR))), 1, most_jobs=10)
    assert [later - sooner for sooner, later in pairwise(curve.begins)][1:] == [20 * HOUR] * 8
