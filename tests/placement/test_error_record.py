from __future__ import annotations

import pytest
from tests.placement.waiting import EMPTY, HOUR_S, SMALL, at, estimated, submit_and_start

from crosstrain.placement.comparison import discounted_s, ewma_s, past_waits, raw_s
from crosstrain.placement.error_record import ErrorRecord, Scored, error_record, pinball
from crosstrain.placement.forecast import Basis, Forecast
from crosstrain.placement.waits import discounted, probed


def stated(point_s: float, low_s: float, high_s: float) -> Forecast:
    return Forecast(at(0), Basis.TEST_ONLY, point_s, (0.01, 0.5, 0.99), (low_s, point_s, high_s))


def test_record_by_hand() -> None:
    record = error_record(
        [
            Scored(stated(100, 100, 100), 100, 400, 200),
            Scored(stated(100, 100, 100), 40, 0, 0),
            Scored(stated(100, 100, 100), 130),
        ]
    )
    assert record.outcomes == 3
    assert record.coverage == pytest.approx((1 / 3,) * 3)
    assert record.widths_s == (0, 0, 0)
    assert record.mean_absolute_s == 30
    assert record.median_absolute_s == 30
    assert record.bias_s == 10
    assert record.over_raw == 60 / 340
    assert record.over_discounted == 60 / 140
    assert record.share_now == 0.5
    # 40 is 60 below each quantile, 130 is 30 above: mean over (0.9 + 0.5 + 0.1) x 60 and (0.1 + 0.5 + 0.9) x 30.
    assert record.pinball_s == pytest.approx((1.5 * 60 + 1.5 * 30) / 9)


def test_record_of_nothing_says_nothing() -> None:
    assert error_record([]) == ErrorRecord(0)


def test_record_without_estimates_has_no_ratio() -> None:
    record = error_record([Scored(stated(1, 0, 2), 1)])
    assert (record.over_raw, record.over_discounted, record.share_now) == (None, None, None)


def test_pinball_weighs_the_two_sides() -> None:
    assert pinball(10, 20, 0.9) == 9
    assert pinball(20, 10, 0.9) == pytest.approx(1)


def test_comparison_predictors_by_hand() -> None:
    assert [
        raw_s(EMPTY, SMALL),
        discounted_s(EMPTY, SMALL),
        ewma_s(EMPTY, SMALL, at(0)),
        past_waits(EMPTY, SMALL, at(0)),
    ] == [
        None,
        None,
        None,
        None,
    ]
    site = discounted(EMPTY, 0.5)
    for day, wait_h in enumerate((8, 4, 1)):
        site = submit_and_start(site, SMALL, day * 24 * HOUR_S, 20 * HOUR_S, wait_h * HOUR_S)
    now = 3 * 24 * HOUR_S
    site = probed(site, SMALL, estimated(now, 12 * HOUR_S))
    assert raw_s(site, SMALL) == 12 * HOUR_S
    assert discounted_s(site, SMALL) == 6 * HOUR_S
    assert ewma_s(site, SMALL, at(now)) == (0.5 * 1 + 0.5 * (0.5 * 4 + 0.5 * 8)) * HOUR_S
    past = past_waits(site, SMALL, at(now))
    assert past is not None
    assert past.point_s == 4 * HOUR_S
