"""How long a job would wait if it were submitted now: a distribution, never one number.

A forecast is a table of quantiles between which the distribution is linear. It can always be asked and always answers: where
nothing is known, `basis` says so and the distribution is as wide as that. A planner therefore needs no case for a site that
could not be observed, and never leaves one out for that alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import isfinite

from crosstrain.domain.ids import Instant

LEVELS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
"""Probabilities that a forecast states; they hold the bands of 50, 80 and 90 %."""
BANDS = (0.5, 0.8, 0.9)
"""Levels of the bands that people are shown."""


class Basis(StrEnum):
    """What a forecast rests on, best first."""

    PLAN = "plan"
    """A plan of the visible queue, corrected by its own past errors."""
    TEST_ONLY = "test-only"
    """The scheduler's own estimate, corrected by its own past errors."""
    SHAPE_HISTORY = "shape-history"
    """Past waits of the same shape."""
    SITE_HISTORY = "site-history"
    """Past waits of other shapes at the site."""
    PARTITION_LIMIT = "partition-limit"
    """Nothing but how long other jobs of the partition may run."""
    UNKNOWN = "unknown"
    """Nothing at all."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The wait of a job of one shape, submitted at `made_at`.

    Attributes:
        made_at: when the forecast was made.
        basis: what it rests on.
        point_s: the one number for people, seconds; the estimate with the least expected absolute error.
        levels: probabilities, increasing, inside (0, 1).
        waits_s: seconds; the job starts within `waits_s[i]` with probability `levels[i]`. Not decreasing, not negative.
        outcomes: how many waits that really happened it was corrected with.
        reason: one sentence for people: what it rests on and what was wrong with the rest.
        experts_s: the calibrated and the plain estimate that the point was mixed from (`blend`); None if it was not.

    Raises:
        ValueError: the table is no distribution of waits.
    """

    made_at: Instant
    basis: Basis
    point_s: float
    levels: tuple[float, ...]
    waits_s: tuple[float, ...]
    outcomes: int = 0
    reason: str = ""
    experts_s: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        numbers = (self.point_s, *self.levels, *self.waits_s)
        if not self.levels or len(self.levels) != len(self.waits_s) or not all(isfinite(x) and x >= 0 for x in numbers):
            raise ValueError(
                f"expected as many finite waits as levels, at least one; found {self.levels}, {self.waits_s}"
            )
        if self.levels[0] <= 0 or self.levels[-1] >= 1 or any(b <= a for a, b in pairwise(self.levels)):
            raise ValueError(f"expected levels that grow inside (0, 1), found {self.levels}")
        if any(b < a for a, b in pairwise(self.waits_s)):
            raise ValueError(f"expected waits that do not decrease, found {self.waits_s}")

    @property
    def known(self) -> bool:
        """Whether anything about this site's queue is behind it."""
        return self.basis not in (Basis.UNKNOWN, Basis.PARTITION_LIMIT)

    def quantile(self, probability: float) -> float:
        """The wait in seconds that is not exceeded with this probability, linear between levels, constant outside them.

        Raises:
            ValueError: the probability is not in [0, 1].
        """
        if not 0 <= probability <= 1:
            raise ValueError(f"a probability is in [0, 1], not {probability}")
        place = bisect_left(self.levels, probability)
        if place == 0:
            return self.waits_s[0]
        if place == len(self.levels):
            return self.waits_s[-1]
        below, above = self.levels[place - 1], self.levels[place]
        if probability == above:
            return self.waits_s[place]
        part = (probability - below) / (above - below)
        return self.waits_s[place - 1] + part * (self.waits_s[place] - self.waits_s[place - 1])

    def sample(self, u: float) -> float:
        """The wait in seconds that belongs to a uniform draw `u` from [0, 1]: equal draws make equal waits."""
        return self.quantile(u)

    def band(self, level: float) -> tuple[float, float]:
        """Lower and upper end in seconds of the central band that holds the wait with probability `level`.

        Raises:
            ValueError: the level is not in [0, 1].
        """
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def probability_within(self, wait_s: float) -> float:
        """The probability that the job starts within `wait_s` seconds; the inverse of `quantile`."""
        if wait_s < self.waits_s[0]:
            return 0.0
        place = bisect_right(self.waits_s, wait_s)
        if place == len(self.waits_s):
            return 1.0
        low, high = self.waits_s[place - 1], self.waits_s[place]
        part = (wait_s - low) / (high - low)
        return self.levels[place - 1] + part * (self.levels[place] - self.levels[place - 1])

    def mean_s(self) -> float:
        """Expected wait in seconds."""
        edges = (0.0, *self.levels, 1.0)
        waits = (self.waits_s[0], *self.waits_s, self.waits_s[-1])
        return sum((edges[i + 1] - edges[i]) * (waits[i] + waits[i + 1]) / 2 for i in range(len(waits) - 1))
