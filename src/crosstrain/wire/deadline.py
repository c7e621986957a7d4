"""The time that something has, with all attempts at it."""

from __future__ import annotations

from crosstrain.clock import Clock


class Deadline:
    """Begins when it is made.

    Args:
        seconds: from then on.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self.seconds = clock, seconds
        self._started = clock.perf()

    @property
    def left_s(self) -> float:
        """Seconds that are left; 0 when it is over."""
        return max(0.0, self.seconds - (self._clock.perf() - self._started))
