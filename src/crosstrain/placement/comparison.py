"""Other ways to tell a wait, for comparison: what `predict` has to be better than. All see only what was known at the time."""

from __future__ import annotations

from crosstrain.domain.ids import Instant
from crosstrain.placement.forecast import LEVELS, Basis, Forecast
from crosstrain.placement.predict import DEFAULT_DISCOUNT, history, waits_known
from crosstrain.placement.shape import Shape
from crosstrain.placement.waits import SiteWaits

EWMA_BETA = 0.5
"""Weight of the newest wait (FedQueue, arXiv 2605.02125)."""


def raw_s(site: SiteWaits, shape: Shape) -> float | None:
    """The scheduler's own estimate at the last probe, seconds."""
    latest = site.of(shape).latest
    return None if latest is None else latest.test_only_s


def discounted_s(site: SiteWaits, shape: Shape) -> float | None:
    """That times the site's discount: the predictor of arXiv 2610.03457."""
    raw = raw_s(site, shape)
    return None if raw is None else raw * (DEFAULT_DISCOUNT if site.discount is None else site.discount)


def ewma_s(site: SiteWaits, shape: Shape, now: Instant) -> float | None:
    """Exponentially weighted mean of the shape's own waits, in the order in which they became known: the predictor of FedQueue."""
    mean_s = None
    for wait in waits_known(site.of(shape), now):
        if wait.started:
            mean_s = wait.wait_s if mean_s is None else EWMA_BETA * wait.wait_s + (1 - EWMA_BETA) * mean_s
    return mean_s


def past_waits(site: SiteWaits, shape: Shape, now: Instant) -> Forecast | None:
    """Quantiles of the shape's past waits, whatever the queue is now (compare Brevik, Nurmi and Wolski, QBETS, PPoPP 2006)."""
    waits = waits_known(site.of(shape), now)
    if not waits:
        return None
    held = history(waits, now)
    quantiles = tuple(held.smooth_quantile(level) for level in LEVELS)
    return Forecast(now, Basis.SHAPE_HISTORY, held.quantile(0.5), LEVELS, quantiles, len(waits))
