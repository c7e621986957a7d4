"""Uniform numbers for sampled waits, the same in every plan: two plans differ only by what they were given.

Samples of one site are spread evenly over [0, 1] and paired with those of other sites in another order; the jobs of a chain
step through [0, 1] by the golden ratio, so that a few jobs already cover it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from crosstrain.placement.forecast import Forecast

GOLDEN = 0.6180339887498949
FEW = 11
"""Samples for the comparison of shapes; prime, so that every stride visits all of them."""
MANY = 53
"""Samples for the plan that is shown."""
GRID = 64
"""Steps of [0, 1] that a forecast is read at: a chain asks for thousands of waits."""


def draws(site: int, sample: int, samples: int) -> Callable[[int], float]:
    """Job number -> uniform number, for one site in one sample.

    Args:
        samples: how many there are; a prime.
    """
    stride = 1 + (5 * site) % (samples - 1)
    first = ((sample * stride + 3 * site) % samples + 0.5) / samples
    return lambda number: (first + number * GOLDEN) % 1.0


def tabulated(forecast: Forecast) -> Sequence[float]:
    """Waits in seconds at the middle of every step of the grid."""
    return [forecast.quantile((step + 0.5) / GRID) for step in range(GRID)]
