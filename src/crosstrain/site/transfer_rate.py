"""What is said of a transfer that is under way: its rate and the time that is left."""

from __future__ import annotations

from collections.abc import Callable

from crosstrain.clock import Clock
from crosstrain.wire.blobs import Progress

SHORTEST_S = 1e-3


def with_rate(clock: Clock, tell: Callable[[int, int, str], None]) -> Progress:
    """A progress callback that tells (bytes there, bytes in all, rate and time left) of a transfer. It is measured from its first
    byte on: what an earlier attempt brought does not count, and one that begins anew is measured anew."""
    since, before = 0.0, -1

    def show(done: int, total: int) -> None:
        nonlocal since, before
        if before < 0 or done <= before:
            since, before = clock.perf(), done
        rate = (done - before) / max(SHORTEST_S, clock.perf() - since)
        left = f", {(total - done) / rate:.0f} s left" if rate and total > done else ""
        tell(done, total, f"{rate / 1e6:.1f} MB/s{left}")

    return show
