"""The only file that reads the time.

The coordinator's clock alone decides what has expired; sites use theirs for durations and for their own walltime.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from crosstrain.domain.ids import Instant


class Clock(Protocol):
    """Source of the present moment."""

    def now(self) -> Instant:
        """UTC milliseconds since 1970."""
        ...

    def perf(self) -> float:
        """Monotonic seconds, for durations."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> Instant:
        return Instant(time.time_ns() // 1_000_000)

    def perf(self) -> float:
        return time.perf_counter()


def pause(seconds: float, wake: threading.Event | None = None) -> bool:
    """Waits up to `seconds` or until `wake` is set; returns whether it was set."""
    return (wake or threading.Event()).wait(max(0.0, seconds))
