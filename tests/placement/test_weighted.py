from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstrain.placement.weighted import Distribution, Sample


def exact(*values: float) -> list[Sample]:
    return [Sample(value, 1.0) for value in values]


def test_quantile_is_the_smallest_value_whose_share_reaches_it() -> None:
    held = Distribution([Sample(3, 1), Sample(1, 2), Sample(2, 1)])
    assert [held.quantile(p) for p in (0, 0.5, 0.51, 0.75, 0.76, 1)] == [1, 1, 2, 2, 3, 3]


def test_smooth_quantile_is_linear_between_the_middles_of_shares() -> None:
    held = Distribution(exact(0, 10, 20, 30))
    assert [held.smooth_quantile(p) for p in (0.01, 0.125, 0.25, 0.5, 0.875, 0.99)] == [0, 0, 5, 15, 30, 30]


def test_weight_of_a_bound_goes_to_the_larger_values() -> None:
    # Kaplan-Meier by hand: after 1 survives 3/4; the bound at 2 leaves two at risk, so that 3 takes half of it.
    held = Distribution([Sample(1, 1), Sample(2, 1, exact=False), Sample(3, 1), Sample(4, 1)])
    assert [held.quantile(p) for p in (0.25, 0.26, 0.62, 0.63)] == [1, 3, 3, 4]


def test_bound_that_nothing_exceeds_counts_as_a_value() -> None:
    held = Distribution([Sample(1, 1), Sample(5, 1, exact=False)])
    assert [held.quantile(p) for p in (0.5, 0.51)] == [1, 5]


def test_bound_equal_to_a_value_is_larger() -> None:
    held = Distribution([Sample(1, 1, exact=False), Sample(1, 1), Sample(2, 2)])
    assert [held.quantile(p) for p in (0.25, 0.26)] == [1, 2]


@pytest.mark.parametrize("samples", [[], [Sample(1, 0)]])
def test_nothing_has_no_distribution(samples: list[Sample]) -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        Distribution(samples)


drawn = st.lists(st.builds(Sample, st.floats(0, 1e6), st.floats(1e-6, 1e3), st.booleans()), min_size=1, max_size=20)


@given(drawn, st.floats(0, 1), st.floats(0, 1))
def test_quantiles_grow_and_stay_among_the_values(samples: list[Sample], a: float, b: float) -> None:
    held, low, high = Distribution(samples), min(s.value for s in samples), max(s.value for s in samples)
    for quantile in (held.quantile, held.smooth_quantile):
        first, second = quantile(min(a, b)), quantile(max(a, b))
        assert low - 1e-6 <= first <= second + 1e-6 <= high + 2e-6


@given(drawn)
def test_bounds_never_make_waits_shorter(samples: list[Sample]) -> None:
    as_if_exact = [Sample(s.value, s.weight) for s in samples]
    for p in (0.1, 0.5, 0.9):
        assert Distribution(samples).quantile(p) >= Distribution(as_if_exact).quantile(p)
