from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstrain.domain.ids import Instant
from crosstrain.placement.forecast import LEVELS, Basis, Forecast

NOW = Instant(1_700_000_000_000)
waits = st.lists(st.floats(0, 1e7), min_size=len(LEVELS), max_size=len(LEVELS)).map(lambda drawn: tuple(sorted(drawn)))


def forecast(waits_s: tuple[float, ...], levels: tuple[float, ...] = LEVELS) -> Forecast:
    return Forecast(NOW, Basis.TEST_ONLY, waits_s[len(waits_s) // 2], levels, waits_s)


QUARTERS = forecast((100.0, 200.0, 600.0), (0.25, 0.5, 0.75))


def test_quantiles_are_linear_between_levels_and_constant_outside() -> None:
    assert [QUARTERS.quantile(p) for p in (0, 0.25, 0.375, 0.5, 0.625, 0.75, 1)] == [100, 100, 150, 200, 400, 600, 600]


def test_band_is_central() -> None:
    assert QUARTERS.band(0.5) == (100, 600)
    assert QUARTERS.band(0.25) == (150, 400)


def test_mean_of_a_table_by_hand() -> None:
    assert QUARTERS.mean_s() == pytest.approx(0.25 * 100 + 0.25 * 150 + 0.25 * 400 + 0.25 * 600)


def test_probability_at_a_mass_is_that_of_its_upper_end() -> None:
    at_once = forecast((0.0, 0.0, 600.0), (0.25, 0.5, 0.75))
    assert at_once.probability_within(0) == 0.5
    assert at_once.probability_within(-1) == 0
    assert at_once.probability_within(600) == 1


@given(waits, st.floats(0, 1), st.floats(0, 1))
def test_quantile_never_decreases(waits_s: tuple[float, ...], a: float, b: float) -> None:
    made = forecast(waits_s)
    assert made.quantile(min(a, b)) <= made.quantile(max(a, b)) + 1e-6


@given(waits, st.sampled_from(LEVELS))
def test_wait_of_a_level_is_reached_with_at_least_that_probability(waits_s: tuple[float, ...], level: float) -> None:
    made = forecast(waits_s)
    assert made.probability_within(made.quantile(level)) >= level


@pytest.mark.parametrize(
    ("levels", "waits_s"),
    [
        ((), ()),
        ((0.5,), (1.0, 2.0)),
        ((0.5, 0.5), (1.0, 2.0)),
        ((0.0, 0.5), (1.0, 2.0)),
        ((0.5, 1.0), (1.0, 2.0)),
        ((0.25, 0.5), (2.0, 1.0)),
        ((0.25, 0.5), (-1.0, 1.0)),
        ((0.25, 0.5), (1.0, math.inf)),
        ((0.25, 0.5), (math.nan, 1.0)),
    ],
)
def test_table_that_is_no_distribution_is_refused(levels: tuple[float, ...], waits_s: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Forecast(NOW, Basis.TEST_ONLY, 1.0, levels, waits_s)


@pytest.mark.parametrize("probability", [-0.1, 1.1, math.nan])
def test_probability_outside_the_unit_interval_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match="probability"):
        QUARTERS.quantile(probability)


def test_only_what_saw_the_queue_counts_as_known() -> None:
    known = {basis for basis in Basis if Forecast(NOW, basis, 0.0, (0.5,), (0.0,)).known}
    assert known == set(Basis) - {Basis.UNKNOWN, Basis.PARTITION_LIMIT}
