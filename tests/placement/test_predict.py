"""The wait model: what it learns, what it must not know, and what it says when nothing can be known."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from tests.placement.waiting import (
    DAY_S,
    EMPTY,
    HOUR_S,
    LARGE,
    SMALL,
    at,
    estimated,
    play,
    submit_and_start,
)

from crosstrain.placement.error_record import error_record
from crosstrain.placement.forecast import Basis, Forecast
from crosstrain.placement.observations import Estimates, Wait
from crosstrain.placement.predict import OLDEST_S, forecast
from crosstrain.placement.waits import SiteWaits, discounted, gone, limited, probed, started, submitted, waited


def asked(site: SiteWaits, seconds: float, estimate_s: float | None, plan_s: float | None = None) -> Forecast:
    """The forecast for the small shape after one more probe."""
    return forecast(probed(site, SMALL, estimated(seconds, estimate_s, plan_s)), SMALL, at(seconds))


def test_scale_recovers_a_known_factor() -> None:
    site, _ = play(40, lambda rng, day, estimate_s: 0.3 * estimate_s)
    assert asked(site, 40 * DAY_S, 20 * HOUR_S).point_s == pytest.approx(6 * HOUR_S, rel=0.02)


def test_before_any_outcome_the_discount_is_the_scale() -> None:
    assert asked(discounted(EMPTY, 0.5), 0, 10 * HOUR_S).reason.startswith("0.50 x the scheduler's estimate")


def test_own_plan_is_preferred_and_has_a_scale_of_its_own() -> None:
    site = EMPTY
    for day in range(30):
        site = submit_and_start(site, SMALL, day * DAY_S, 20 * HOUR_S, 4 * HOUR_S, plan_s=5 * HOUR_S)
    made = asked(site, 30 * DAY_S, 20 * HOUR_S, plan_s=10 * HOUR_S)
    assert made.basis is Basis.PLAN
    assert made.point_s == pytest.approx(8 * HOUR_S, rel=0.02)
    assert asked(site, 30 * DAY_S, 10 * HOUR_S).point_s == pytest.approx(2 * HOUR_S, rel=0.02)


@pytest.mark.parametrize(("discount", "scale"), [(None, "0.60"), (0.3, "1.00")])
def test_own_plan_with_run_times_from_accounting_needs_no_discount(discount: float | None, scale: str) -> None:
    site = EMPTY if discount is None else discounted(EMPTY, discount)
    assert asked(site, 0, 20 * HOUR_S, plan_s=5 * HOUR_S).reason.startswith(f"{scale} x own plan of the queue")


def test_point_goes_back_to_the_plain_estimate_where_that_was_closer_of_late() -> None:
    site = discounted(EMPTY, 0.5)
    for day in range(40):
        # A queue that empties fast: a scale from the weeks before is too large, day after day.
        estimate_s = 10 * HOUR_S
        site = submit_and_start(site, SMALL, day * DAY_S, estimate_s, max(0.5, 0.95 - 0.015 * day) * estimate_s)
    made = asked(site, 40 * DAY_S, 10 * HOUR_S)
    assert made.experts_s is not None
    calibrated_s, plain_s = made.experts_s
    assert plain_s == 5 * HOUR_S
    assert plain_s < made.point_s < calibrated_s
    assert "of the point is 0.50 x it" in made.reason


def test_other_shapes_of_the_site_stand_in_until_a_shape_has_outcomes() -> None:
    site = discounted(EMPTY, 0.9)
    for day in range(20):
        site = submit_and_start(site, LARGE, day * DAY_S, 20 * HOUR_S, 2 * HOUR_S)
    assert asked(site, 20 * DAY_S, 20 * HOUR_S).reason.startswith("0.10 x")


def test_estimate_of_zero_has_residuals_of_its_own() -> None:
    site = EMPTY
    for day in range(30):
        site = submit_and_start(site, SMALL, day * DAY_S, 40 * HOUR_S, 20 * HOUR_S)
        site = submit_and_start(site, SMALL, (day + 0.9) * DAY_S, 0, 30)
    assert asked(site, 31 * DAY_S, 0).quantile(0.9) < 120
    assert asked(site, 31 * DAY_S, 40 * HOUR_S).quantile(0.1) > 15 * HOUR_S


@pytest.mark.parametrize("seed", range(3))
def test_bands_keep_their_level_while_the_queue_drifts(seed: int) -> None:
    def truth(rng: random.Random, day: int, estimate_s: float) -> float:
        return estimate_s * (0.2 + 0.2 * (day > 150)) * math.exp(rng.gauss(0, 0.3 + 0.3 * (day > 220)))

    _, scored = play(300, truth, seed)
    coverage = error_record(scored[30:]).coverage
    assert coverage is not None
    assert [abs(share - level) < 0.06 for share, level in zip(coverage, (0.5, 0.8, 0.9), strict=True)] == [True] * 3


def test_jobs_that_still_wait_or_were_cancelled_make_forecasts_longer() -> None:
    site = EMPTY
    for day in range(12):
        site = submit_and_start(site, SMALL, day * DAY_S, 10 * HOUR_S, 2 * HOUR_S)
    now = 20 * DAY_S
    before = asked(site, now, 10 * HOUR_S)
    waiting = site
    for number in range(12):
        submitted_s = now - (30 - number) * HOUR_S
        waiting = probed(waiting, SMALL, estimated(submitted_s, 10 * HOUR_S))
        waiting = submitted(waiting, f"w{number}", SMALL, at(submitted_s), before)
    assert asked(waiting, now, 10 * HOUR_S).mean_s() > before.mean_s()
    cancelled = waiting
    for number in range(12):
        cancelled = gone(cancelled, f"w{number}", at(now))
    assert asked(cancelled, now, 10 * HOUR_S).mean_s() > before.mean_s()
    assert not cancelled.of(SMALL).open


def test_stale_probe_widens_the_band_and_does_not_move_it() -> None:
    site, _ = play(40, lambda rng, day, estimate_s: 0.3 * estimate_s * rng.uniform(0.5, 1.5))
    now = 50 * DAY_S
    site = probed(site, SMALL, estimated(now, 30 * HOUR_S))
    ages = [forecast(site, SMALL, at(now + hours * HOUR_S)) for hours in (0, 1, 7, 25)]
    widths = [made.band(0.8)[1] - made.band(0.8)[0] for made in ages]
    assert widths[0] <= widths[1] < widths[2] < widths[3]
    assert [made.point_s for made in ages] == pytest.approx([ages[0].point_s] * 4, rel=0.1)


def test_without_a_usable_probe_past_waits_are_the_forecast() -> None:
    site, _ = play(30, lambda rng, day, estimate_s: 7200.0)
    made = forecast(site, SMALL, at(30 * DAY_S + OLDEST_S))
    assert (made.basis, made.point_s) == (Basis.SHAPE_HISTORY, 7200)
    other = forecast(site, LARGE, at(30 * DAY_S))
    assert (other.basis, other.point_s) == (Basis.SITE_HISTORY, 7200)
    assert "never probed" in other.reason


def test_without_any_wait_the_partition_limit_is_the_forecast_and_without_that_nothing_is() -> None:
    made = forecast(limited(EMPTY, "batch", 12 * HOUR_S), SMALL, at(0))
    assert made.basis is Basis.PARTITION_LIMIT
    assert made.mean_s() == pytest.approx(12 * HOUR_S, rel=0.2)
    nothing = forecast(limited(EMPTY, "batch", math.inf), SMALL, at(0))
    assert nothing.basis is Basis.UNKNOWN
    assert nothing.band(0.8)[1] > 24 * HOUR_S


def test_estimates_that_cannot_be_are_dropped_or_count_as_now_and_are_counted() -> None:
    site = EMPTY
    for seconds, estimate_s in enumerate((math.nan, math.inf, 61 * DAY_S, -5.0)):
        site = probed(site, SMALL, estimated(seconds, estimate_s))
    assert (site.absurd_estimates, site.past_estimates) == (3, 1)
    assert site.of(SMALL).latest == estimated(3, 0.0)
    assert probed(EMPTY, SMALL, estimated(0, math.nan)).shapes == ()


def test_sane_half_of_a_probe_is_kept() -> None:
    made = asked(EMPTY, 0, math.nan, plan_s=HOUR_S)
    assert made.basis is Basis.PLAN


def test_what_cannot_be_a_wait_changes_nothing() -> None:
    for wait_s in (-1.0, math.nan, math.inf):
        assert waited(EMPTY, SMALL, Wait(at(0), wait_s)) == EMPTY
    for discount in (0.0, -1.0, 1.5, math.nan):
        assert discounted(EMPTY, discount) == EMPTY
    assert started(EMPTY, "nobody", at(0)) == EMPTY
    assert gone(EMPTY, "nobody", at(0)) == EMPTY


def test_events_that_come_twice_or_late_change_nothing() -> None:
    site = probed(EMPTY, SMALL, estimated(100, HOUR_S))
    assert probed(site, SMALL, estimated(50, 2 * HOUR_S)) == site
    once = submitted(site, "a", SMALL, at(100), forecast(site, SMALL, at(100)))
    for seconds in (0, 100, 150):
        assert submitted(once, "a", SMALL, at(seconds), forecast(site, SMALL, at(seconds))) == once
    done = started(once, "a", at(300))
    assert started(done, "a", at(400)) == done


def test_wait_of_a_chained_job_begins_when_it_became_eligible() -> None:
    queued = submitted(EMPTY, "a", SMALL, at(0), forecast(EMPTY, SMALL, at(0)))
    freed = submitted(queued, "a", SMALL, at(8 * HOUR_S), forecast(EMPTY, SMALL, at(8 * HOUR_S)))
    (wait,) = started(freed, "a", at(9 * HOUR_S)).of(SMALL).waits
    assert (wait.submitted_at, wait.wait_s) == (at(8 * HOUR_S), HOUR_S)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0, 40))
def test_wait_that_is_not_known_yet_changes_no_forecast(seed: int, hidden_h: float) -> None:
    site, _ = play(15, lambda rng, day, estimate_s: estimate_s * rng.uniform(0.1, 0.9), seed)
    now = 15 * DAY_S
    site = probed(site, SMALL, estimated(now, 9 * HOUR_S))
    unknown = Wait(at(now - HOUR_S), (hidden_h + 1.01) * HOUR_S, True, estimated(now - HOUR_S, 9 * HOUR_S))
    assert forecast(waited(site, SMALL, unknown), SMALL, at(now)) == forecast(site, SMALL, at(now))


numbers = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(-10, 10**6), numbers, numbers, st.floats(0, 1e6)), max_size=12))
def test_any_readings_make_a_forecast(readings: list[tuple[int, float | None, float | None, float]]) -> None:
    site = EMPTY
    for seconds, estimate_s, plan_s, wait_s in readings:
        site = submit_and_start(site, SMALL, seconds, estimate_s, wait_s, plan_s)
    made = forecast(site, SMALL, at(10**6))
    assert made.waits_s[0] >= 0


def test_state_survives_json() -> None:
    site, _ = play(12, lambda rng, day, estimate_s: estimate_s / 2)
    site = probed(site, LARGE, Estimates(at(0), 5.0, 6.0))
    site = submitted(limited(site, "batch", DAY_S), "open", LARGE, at(10), forecast(site, LARGE, at(10)))
    held = TypeAdapter(SiteWaits)
    assert held.validate_json(held.dump_json(site)) == site


def test_old_waits_are_forgotten() -> None:
    site, _ = play(100, lambda rng, day, estimate_s: estimate_s / 2)
    assert len(site.of(SMALL).waits) <= 62
    assert replace(site, shapes=()) == discounted(EMPTY, 0.6)
