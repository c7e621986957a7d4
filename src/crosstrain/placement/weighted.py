"""Quantiles of weighted samples, some of which are only known to be larger than a bound."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """A value with a weight.

    Attributes:
        exact: False if the true value is larger, by an unknown amount.
    """

    value: float
    weight: float
    exact: bool = True


class Distribution:
    """The weighted empirical distribution of samples, by the estimator of Kaplan and Meier (JASA 1958).

    The weight of a bound is shared out among the larger exact values in proportion to theirs (Efron, 1967). Where there
    are none, it stays at the bound.

    Raises:
        ValueError: there is no sample with a positive weight.
    """

    __slots__ = ("_shares", "_values", "size")

    size: float
    """Effective number of samples, (sum of weights)^2 / sum of squares (Kish, 1965)."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._values: list[float] = []
        self._shares: list[float] = []
        """Cumulative share of the weight up to and including each value."""
        ordered = sorted((sample for sample in samples if sample.weight > 0), key=lambda s: (s.value, not s.exact))
        total = left = sum(sample.weight for sample in ordered)
        if not total > 0:
            raise ValueError("expected at least one sample with a positive weight")
        self.size = 1 / sum((sample.weight / total) ** 2 for sample in ordered)
        surviving, done = 1.0, 0.0
        for place, sample in enumerate(ordered):
            last = place == len(ordered) - 1
            if sample.exact or last:
                share = surviving if last else surviving * sample.weight / left
                surviving -= share
                done += share
                self._values.append(sample.value)
                self._shares.append(done)
            left -= sample.weight

    def quantile(self, probability: float) -> float:
        """The smallest value whose share reaches the probability."""
        place = bisect_left(self._shares, probability - 1e-12)
        return self._values[min(place, len(self._values) - 1)]

    def smooth_quantile(self, probability: float) -> float:
        """Linear between the middles of the values' shares; the extremes outside them."""
        before, middle, value = 0.0, 0.0, self._values[0]
        for here, share in zip(self._values, self._shares, strict=True):
            centre = (before + share) / 2
            if centre >= probability:
                if before == 0.0 or centre == middle:
                    return here
                return value + (here - value) * (probability - middle) / (centre - middle)
            before, middle, value = share, centre, here
        return value
