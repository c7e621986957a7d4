"""The share of the plain estimate in a point."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from crosstrain.placement.blend import Told, mixed, plain_share
from crosstrain.placement.calibration import HALF_LIFE_S

HOUR = 3600.0


def told(truth: Sequence[float], calibrated: float, plain: float, age_s: float = 0.0) -> list[Told]:
    return [Told(calibrated, plain, wait_s, age_s) for wait_s in truth]


def test_before_any_outcome_the_plain_estimate_has_no_share() -> None:
    assert plain_share([], []) == 0
    assert plain_share(told([HOUR] * 5, HOUR, 9 * HOUR), []) == 0


def test_expert_that_is_always_right_takes_all() -> None:
    assert plain_share(told([9.0] * 40, 1.0, 9.0), []) == pytest.approx(1, abs=0.02)
    assert plain_share(told([2.0, 0.0] * 20, 1.0, 90.0), []) == pytest.approx(0, abs=0.02)


def test_mixture_is_preferred_to_both_where_they_err_to_different_sides() -> None:
    rng = random.Random(3)
    past = [Told(wait - rng.uniform(2, 4), wait + rng.uniform(6, 8), wait, 0.0) for wait in range(20, 60)]
    share = plain_share(past, [])
    assert 0.2 < share < 0.4
    losses = {q: sum(abs(mixed(t.calibrated_s, t.plain_s, q) - t.wait_s) for t in past) for q in (0.0, share, 1.0)}
    assert losses[share] < 0.5 * min(losses[0.0], losses[1.0])


def test_other_shapes_count_less_and_old_outcomes_too() -> None:
    for_it, against = told([9.0] * 10, 1.0, 9.0), told([1.0] * 10, 2.0, 9.0)
    assert plain_share(for_it, against) > plain_share(against, for_it)
    old = [Told(t.calibrated_s, t.plain_s, t.wait_s, 8 * HALF_LIFE_S) for t in for_it]
    assert plain_share(old + against, []) < plain_share(for_it + against, [])
