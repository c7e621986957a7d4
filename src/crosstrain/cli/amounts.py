"""Amounts on the command line: finite, within a range, in words that the rest of the message style uses."""

from __future__ import annotations

import math
from collections.abc import Callable

from crosstrain.errors import UsageError

LONGEST_S = 1e9


def between(low: float, high: float) -> Callable[[float | None], float | None]:
    """A typer callback that refuses what is not a finite number from `low` to `high`.

    Raises:
        UsageError: names what was found.
    """

    def check(value: float | None) -> float | None:
        if value is not None and not (math.isfinite(value) and low <= value <= high):
            raise UsageError(f"Expected a number from {low:g} to {high:g}, found {value}.", "see --help")
        return value

    return check


seconds = between(0.0, LONGEST_S)
"""For durations that may be zero."""
