"""How far the point of a forecast goes back from the calibrated estimate to the plain one.

A scale learnt from a few dozen outcomes lags behind a queue that changes; the plain estimate - times the site's discount, or as an own plan
says it - does not, and errs for other reasons. Both are experts, and so is every mixture of them in steps of a tenth: their shares
are averaged with weights that fall exponentially with the loss that each would have had on own jobs so far (exponentially weighted average
forecaster; Cesa-Bianchi and Lugosi, 2006). That is about as good as the best mixture in hindsight, and a plain estimate that is
always wrong soon counts for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

from crosstrain.placement.calibration import HALF_LIFE_S, OTHERS_WEIGHT, fading

SHARES = tuple(step / 10 for step in range(11))


@dataclass(frozen=True, slots=True)
class Told:
    """What both said of a wait, and what happened; all in seconds.

    Attributes:
        age_s: since it was said.
    """

    calibrated_s: float
    plain_s: float
    wait_s: float
    age_s: float


def plain_share(own: Sequence[Told], others: Sequence[Told]) -> float:
    """The share of the plain estimate, in [0, 1]; 0 before anything happened. A loss is an absolute error, in units of the
    calibrated estimate's mean one, and counts half after `HALF_LIFE_S`.

    Args:
        own: of the shape.
        others: of other shapes of the site, which count less.
    """
    weighted = [
        (told, weight * fading(told.age_s, HALF_LIFE_S))
        for past, weight in ((own, 1.0), (others, OTHERS_WEIGHT))
        for told in past
    ]
    calibrated = sum(weight * abs(told.calibrated_s - told.wait_s) for told, weight in weighted)
    if calibrated == 0:
        return 0.0
    unit = calibrated / sum(weight for _, weight in weighted)
    losses = [
        sum(weight * abs(mixed(told.calibrated_s, told.plain_s, share) - told.wait_s) for told, weight in weighted)
        for share in SHARES
    ]
    weights = [exp((min(losses) - loss) / unit) for loss in losses]
    return sum(weight * share for weight, share in zip(weights, SHARES, strict=True)) / sum(weights)


def mixed(calibrated_s: float, plain_s: float, share: float) -> float:
    """Both estimates in one, with this share of the plain one."""
    return (1 - share) * calibrated_s + share * plain_s
