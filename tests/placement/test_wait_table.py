from __future__ import annotations

from tests.placement.waiting import DAY_S, EMPTY, HOUR_S, LARGE, SMALL, at, estimated, play

from crosstrain.placement.forecast import BANDS
from crosstrain.placement.predict import forecast
from crosstrain.placement.wait_table import wait_rows
from crosstrain.placement.waits import probed, submitted


def test_row_has_the_forecast_its_bands_its_age_and_the_record() -> None:
    site, scored = play(20, lambda rng, day, estimate_s: 0.4 * estimate_s)
    now = 20 * DAY_S
    site = probed(site, LARGE, estimated(now - HOUR_S, 9 * HOUR_S))
    site = submitted(site, "open", LARGE, at(now), forecast(site, LARGE, at(now)))
    small, large = wait_rows(site, at(now))
    assert (small.shape, large.shape) == (SMALL, LARGE)
    assert small.forecast == forecast(site, SMALL, at(now))
    assert small.bands_s == tuple(small.forecast.band(level) for level in BANDS)
    assert (small.record.outcomes, large.record.outcomes) == (len(scored), 0)
    assert (small.waiting, large.waiting) == (0, 1)
    assert (small.probe_age_s, large.probe_age_s) == (DAY_S, HOUR_S)


def test_site_that_was_never_seen_has_no_rows() -> None:
    assert wait_rows(EMPTY, at(0)) == ()
