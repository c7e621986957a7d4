from __future__ import annotations

import random

import pytest

from crosstrain.placement.conformal import EDGE, STEP, adapt

LEVELS = (0.1, 0.5, 0.9)


def test_level_moves_by_the_step_towards_balance() -> None:
    inside = adapt(LEVELS, LEVELS, (10.0, 20.0, 30.0), 25.0)
    assert inside == pytest.approx((0.1 + STEP * 0.1, 0.5 + STEP * 0.5, 0.9 - STEP * 0.1))
    above = adapt(LEVELS, LEVELS, (10.0, 20.0, 30.0), 31.0)
    assert above == pytest.approx((0.1 + STEP * 0.1, 0.5 + STEP * 0.5, 0.9 + STEP * 0.9))
    below = adapt(LEVELS, LEVELS, (10.0, 20.0, 30.0), 9.0)
    assert below == pytest.approx((0.1 - STEP * 0.9, 0.5 - STEP * 0.5, 0.9 - STEP * 0.1))


def test_wait_at_the_end_of_a_band_is_inside() -> None:
    assert adapt(LEVELS, LEVELS, (0.0, 0.0, 0.0), 0.0) == pytest.approx(
        (0.1 + STEP * 0.1, 0.5 - STEP * 0.5, 0.9 - STEP * 0.1)
    )


def test_levels_stay_inside_the_unit_interval() -> None:
    levels: tuple[float, ...] = LEVELS
    for _ in range(1000):
        levels = adapt(levels, LEVELS, (0.0, 0.0, 0.0), 1.0)
    assert levels == (1 - EDGE,) * 3
    for _ in range(1000):
        levels = adapt(levels, LEVELS, (9.0, 9.0, 9.0), 1.0)
    assert levels == (EDGE,) * 3


def test_quantiles_of_a_wrong_distribution_come_to_keep_their_promise() -> None:
    # Stated are quantiles of a uniform distribution on [0, 1]; waits are powers of uniform draws.
    rng, levels, above = random.Random(3), LEVELS, [0, 0, 0]
    counted = range(500, 4500)
    for number in range(4500):
        wait = rng.random() ** 0.7
        if number in counted:
            above = [count + (wait > level) for count, level in zip(above, levels, strict=True)]
        levels = adapt(levels, LEVELS, levels, wait)  # type: ignore[assignment]
    assert [count / len(counted) for count in above] == pytest.approx([0.9, 0.5, 0.1], abs=0.02)
