"""When a run is done, for chains whose waits are given.

While n sites train at rates r_i a round of G tokens takes G / sum r_i plus the exchange, so tokens flow at
R / (1 + R x / G) with R = sum r_i and x the seconds of an exchange. Between two changes of membership that is constant: the
sweep below is the round by round simulation without its many equal rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from crosstrain.placement.chain import Curve
from crosstrain.placement.offer import Demand


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time in which the same sites train.

    Attributes:
        begin_s, end_s: seconds from now.
        tokens_per_s: of all of them, exchanges included.
    """

    begin_s: float
    end_s: float
    tokens_per_s: float


def effective_rate(rate: float, demand: Demand) -> float:
    """Tokens per second of sites that train at `rate` together, exchanges included."""
    return rate / (1 + rate * demand.exchange_s / demand.round_tokens)


def stretches(curves: Sequence[Curve], demand: Demand) -> list[Stretch]:
    """The stretches of what was played job by job, in order; times without any site are left out."""
    changes: dict[float, float] = {}
    for curve in curves:
        for begin, end, rate in zip(curve.begins, curve.ends, curve.rates, strict=True):
            changes[begin] = changes.get(begin, 0.0) + rate
            changes[end] = changes.get(end, 0.0) - rate
    found, rate, before = [], 0.0, 0.0
    for instant in sorted(changes):
        if rate > _NOTHING and instant > before:
            found.append(Stretch(before, instant, effective_rate(rate, demand)))
        rate, before = rate + changes[instant], instant
    return found


_NOTHING = 1e-6
"""Tokens per second; what is left of sums of rates that cancel is smaller."""


def finish_by_rounds(curves: Sequence[Curve], demand: Demand) -> float:
    """Seconds until all tokens are trained; infinite if the chains that were played do not train them all."""
    left = demand.tokens
    for stretch in stretches(curves, demand):
        amount = stretch.tokens_per_s * (stretch.end_s - stretch.begin_s)
        if amount >= left:
            return stretch.begin_s + left / stretch.tokens_per_s
        left -= amount
    return inf


def finish_by_curves(curves: Sequence[Curve], tokens: float, horizon_s: float, guess_s: float = 0.0) -> float:
    """Seconds until the curves add up to `tokens`, exchanges not counted; infinite beyond the horizon. Several times
    faster than the sweep, and blind to how the sites share rounds.

    Args:
        guess_s: where to look first.
    """
    low, high = 0.0, horizon_s
    if sum([curve.at(high) for curve in curves]) < tokens:
        return inf
    for factor in (1.0, 1.03, 0.97, 1.2, 0.8):  # a good guess is soon enclosed
        probe = guess_s * factor
        if low < probe < high:
            low, high = (probe, high) if sum([curve.at(probe) for curve in curves]) < tokens else (low, probe)
    while high - low > _CLOSE_S:
        middle = (low + high) / 2
        low, high = (middle, high) if sum([curve.at(middle) for curve in curves]) < tokens else (low, middle)
    return high


_CLOSE_S = 30.0
"""Plans that differ by less are the same to a person."""
