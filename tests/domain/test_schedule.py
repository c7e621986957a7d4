from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstrain.domain.schedule import LearningRateSchedule

SCHEDULE = LearningRateSchedule(peak=1.0, warmup_steps=10, total_steps=110, min_factor=0.1)


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, 0.1), (8, 0.9), (9, 1.0), (10, 1.0), (60, 0.55), (110, 0.1), (10**6, 0.1)],
)
def test_schedule_values_at_its_corners(step: int, expected: float) -> None:
    assert math.isclose(SCHEDULE.at(step), expected)


@given(st.integers(0, 300), st.integers(0, 40), st.integers(0, 40))
def test_schedule_is_the_same_however_the_steps_are_divided(first: int, some: int, more: int) -> None:
    whole = SCHEDULE.values(first, some + more)
    assert whole == SCHEDULE.values(first, some) + SCHEDULE.values(first + some, more)


@given(st.floats(1e-6, 1.0), st.integers(0, 50), st.integers(1, 400), st.floats(0, 1), st.integers(0, 1000))
def test_schedule_stays_between_zero_and_its_peak(
    peak: float, warmup: int, total: int, factor: float, step: int
) -> None:
    rate = LearningRateSchedule(peak, warmup, total, factor).at(step)
    assert 0 <= rate <= peak * (1 + 1e-12)


def test_schedule_without_warmup_starts_at_the_peak() -> None:
    assert LearningRateSchedule(0.5, 0, 10, 0.0).at(0) == 0.5


def test_schedule_warmup_beyond_the_horizon_ends_at_the_minimum() -> None:
    schedule = LearningRateSchedule(1.0, 20, 10, 0.25)
    assert schedule.at(19) == 1.0
    assert schedule.at(21) == 0.25
