"""Who works at a transfer."""

from __future__ import annotations

import threading
from collections.abc import Callable

from crosstrain.wire.crew import Labour, Threads


def test_threads_work_all_at_the_same_time() -> None:
    together = threading.Barrier(16)

    def work(_look: Callable[[], None]) -> None:
        together.wait(30)

    Threads().run(Labour(work, lambda: None, together.abort), 16)
    assert Threads.most == 16
