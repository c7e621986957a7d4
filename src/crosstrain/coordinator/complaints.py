"""Troubles of the coordinator's own that requests hear of, in its log too: seldom, however many requests hear them."""

from __future__ import annotations

import logging
import threading

from crosstrain.clock import Clock
from crosstrain.domain.timeouts import COMPLAINT_S
from crosstrain.errors import EnvironmentFault

log = logging.getLogger(__name__)


class Complaints:
    """For several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._next_at, self._unsaid = float("-inf"), 0

    def tell(self, error: EnvironmentFault) -> None:
        """Says it, unless something was said within a minute."""
        with self._lock:
            if self._clock.perf() < self._next_at:
                self._unsaid += 1
                return
            self._next_at, unsaid, self._unsaid = self._clock.perf() + COMPLAINT_S, self._unsaid, 0
        others = f" (and {unsaid} before it)" if unsaid else ""
        log.error("a request is told to come again%s: %s", others, error)
