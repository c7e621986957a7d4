"""What a job usually waits at a site, whatever its queue is today: a queue forgets its state, and plans look weeks ahead."""

from __future__ import annotations

from math import exp

from crosstrain.domain.ids import Instant
from crosstrain.placement.forecast import LEVELS, Basis, Forecast
from crosstrain.placement.predict import FEWEST_WAITS, history, waits_known
from crosstrain.placement.shape import HOUR_S, Shape
from crosstrain.placement.waits import SiteWaits

FADES_S = 12 * HOUR_S
"""After so long 1/e of what today's queue tells is left. Of 0, 12 and 36 h, 12 h was best on the first halves of the logs
that the planner is measured on (docs/measurements.md)."""


def usual_wait(site: SiteWaits, shape: Shape, now: Instant) -> Forecast | None:
    """The shape's past waits as a forecast, None before there are enough of them."""
    waits = waits_known(site.of(shape), now)
    count = sum(wait.started for wait in waits)
    if count < FEWEST_WAITS:
        return None
    held = history(waits, now)
    quantiles = tuple(held.smooth_quantile(level) for level in LEVELS)
    return Forecast(now, Basis.SHAPE_HISTORY, held.quantile(0.5), LEVELS, quantiles, count)


def share_of_today(after_s: float) -> float:
    """How much of a forecast made now holds for a job that is submitted after that many seconds, from 1 down to 0."""
    return exp(-max(0.0, after_s) / FADES_S)
