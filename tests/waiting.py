"""Waiting for what other threads and processes do."""

from __future__ import annotations

from collections.abc import Callable

from crosstrain.clock import SystemClock, pause

PATIENCE_S = 20.0
LOOK_S = 0.005


def until(condition: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """Looks until something holds, and fails when it does not in time."""
    clock = SystemClock()
    deadline = clock.perf() + patience_s
    while not condition():
        assert clock.perf() < deadline, "waited in vain"
        pause(LOOK_S)
