"""From an estimate to a distribution of waits, by what became of earlier estimates of the same kind.

The wait is taken as scale x estimate, with relative residuals (wait - scale x estimate) / (scale x estimate + `EASE_S`). The
scale is the median of wait / estimate, weighted by the estimate, which makes the sum of absolute errors least. Until a shape has
`PRIOR_WEIGHT` outcomes of its own, other shapes of the site and the site's discount (used over requested node-time, the
correction of arXiv 2610.03457) stand in for the missing ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, exp2, log

from crosstrain.placement.weighted import Distribution, Sample

DAY_S = 86400.0
EASE_S = 1800.0
"""Half an hour, so that residuals of short estimates do not explode."""
PRIOR_WEIGHT = 8.0
LIKENESS = 1.5
"""Width, in log(estimate), of the likeness of two estimates."""
HALF_LIFE_S = 20 * DAY_S
"""Of the weight of what became of an estimate."""
OTHERS_WEIGHT = 0.3
"""Of residuals of other shapes, in the width of the band: their queue is the same."""
PRIOR_SPREAD = (0.0, 0.0, 0.1, 0.3, 0.6, 1.0, 1.2, 1.6, 2.5)
"""Wait over scale x estimate before anything is known: schedulers err far more often by too much than by too little."""
PRIOR_WAITS_S = (0.0, 0.0, 0.0, 0.0, 60.0, 600.0, 3600.0)
"""Waits after an estimate of zero before anything is known."""


@dataclass(frozen=True, slots=True)
class Pair:
    """An estimate and what became of it.

    Attributes:
        exact: False makes `wait_s` a lower bound.
        age_s: since the estimate was made.
    """

    estimate_s: float
    wait_s: float
    exact: bool
    age_s: float


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A shape's pairs with the scale that fits them."""

    scale: float
    pairs: tuple[Pair, ...]


def calibrate(own: Sequence[Pair], others: Sequence[Pair], discount: float) -> Calibrated:
    """Fits the scale: the median of wait over estimate, weighted by the estimate.

    Args:
        own: of the shape.
        others: of other shapes of the site.
        discount: stands for `PRIOR_WEIGHT` outcomes, less those that there are.
    """
    told, others = [p for p in own if p.estimate_s > 0], [p for p in others if p.estimate_s > 0]
    missing = max(0.0, PRIOR_WEIGHT - sum(pair.exact for pair in told))
    samples = [Sample(p.wait_s / p.estimate_s, p.estimate_s * fading(p.age_s, HALF_LIFE_S), p.exact) for p in told]
    unit = sum(p.estimate_s for p in told) / len(told) if told else 1.0
    if missing > 0:
        pooled = min(missing, len(others))
        total = sum(p.estimate_s for p in others)
        samples += [Sample(p.wait_s / p.estimate_s, pooled * unit * p.estimate_s / total, p.exact) for p in others]
        samples.append(Sample(discount, unit * (missing - pooled)))
    return Calibrated(Distribution(samples).quantile(0.5), tuple(own))


def spread(own: Calibrated, others: Sequence[Calibrated], estimate_s: float) -> Distribution:
    """Waits to be expected after this estimate, in seconds, from what became of estimates like it.

    Args:
        own: of the shape.
        others: of other shapes of the site, whose residuals count less.
    """
    centre = own.scale * estimate_s
    missing = max(
        0.0, PRIOR_WEIGHT - sum(pair.exact and (pair.estimate_s > 0) == (estimate_s > 0) for pair in own.pairs)
    )
    prior = [centre * part for part in PRIOR_SPREAD] if estimate_s > 0 else PRIOR_WAITS_S
    samples = [Sample(wait_s, missing / len(prior)) for wait_s in prior]
    for calibrated, weight in ((own, 1.0), *((other, OTHERS_WEIGHT) for other in others)):
        for pair in calibrated.pairs:
            if (pair.estimate_s > 0) == (estimate_s > 0):
                past = calibrated.scale * pair.estimate_s
                residual = (pair.wait_s - past) / (past + EASE_S)
                likeness = weight * _likeness(centre, past) * fading(pair.age_s, HALF_LIFE_S)
                samples.append(Sample(max(0.0, centre + residual * (centre + EASE_S)), max(1e-9, likeness), pair.exact))
    return Distribution(samples)


def fading(age_s: float, half_life_s: float) -> float:
    """Weight of something of this age."""
    return exp2(-age_s / half_life_s)


def _likeness(here_s: float, there_s: float) -> float:
    apart = log((here_s + EASE_S) / (there_s + EASE_S)) / LIKENESS
    return exp(-apart * apart / 2)
