"""The fluid model: Table 4 of the paper and the closed form behind its percentages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstrain.placement.waterfill import FluidSite, wait_for_all, waterfill

SITES = st.lists(
    st.builds(FluidSite, st.just("site"), st.floats(1.0, 1e6), st.floats(0.0, 500.0)), min_size=1, max_size=6
)


@given(SITES, st.floats(1.0, 1e9))
def test_all_work_is_poured_and_no_site_works_before_it_can(sites: list[FluidSite], tokens: float) -> None:
    fill = waterfill(sites, tokens)
    assert sum(fill.tokens) == pytest.approx(tokens)
    for site, active in zip(sites, fill.active_h, strict=True):
        assert active == pytest.approx(max(0.0, fill.finish_h - site.wait_h))


@given(SITES, st.floats(1.0, 1e9))
def test_waiting_for_all_is_never_faster(sites: list[FluidSite], tokens: float) -> None:
    assert waterfill(sites, tokens).finish_h <= wait_for_all(sites, tokens) * (1 + 1e-12)


@pytest.mark.parametrize("wait", [0.0, 5.0, 40.0, 400.0])
def test_one_late_site_follows_the_closed_form(wait: float) -> None:
    """With share s of the rate at the late site: T0 + s w while w < T0 / (1 - s), then T0 / (1 - s)."""
    tokens, rates = 1000.0, (30.0, 70.0)
    alone, share = tokens / 100, 0.7
    expected = alone + share * wait if wait < alone / (1 - share) else alone / (1 - share)
    fill = waterfill([FluidSite("early", rates[0], 0.0), FluidSite("late", rates[1], wait)], tokens)
    assert fill.finish_h == pytest.approx(expected)


def test_a_site_without_a_rate_gets_nothing() -> None:
    fill = waterfill([FluidSite("works", 10.0, 1.0), FluidSite("broken", 0.0, 0.0)], 100.0)
    assert fill.active_h == (10.0, 0.0) and fill.tokens == (100.0, 0.0)


@pytest.mark.parametrize(
    ("sites", "tokens"),
    [
        ([], 1.0),
        ([FluidSite("a", 0.0, 0.0)], 1.0),
        ([FluidSite("a", 1.0, -1.0)], 1.0),
        ([FluidSite("a", 1.0, 0.0)], 0.0),
        ([FluidSite("a", 1.0, 0.0)], float("nan")),
    ],
)
def test_senseless_problems_are_refused(sites: list[FluidSite], tokens: float) -> None:
    with pytest.raises(ValueError, match="expected"):
        waterfill(sites, tokens)
