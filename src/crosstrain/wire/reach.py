"""Whether bytes get to and from the object store, past the coordinator."""

from __future__ import annotations

import logging
import threading

from crosstrain.clock import Clock
from crosstrain.domain.timeouts import STORE_AVOIDED_S, STORE_PATIENCE_S
from crosstrain.errors import Refused

log = logging.getLogger(__name__)

FAILURES = 3
"""In a row, of every connection, before a store counts as out of reach."""
REFUSALS = 3
"""Likewise addresses that the store refuses, each signed anew; one that is only too old is followed by one that is good."""


class OutOfReachError(Exception):
    """Nothing arrives, however often it is tried."""


class Reach:
    """One transfer's attempts at the store; for several threads.

    Args:
        streams: how many connections try at once.
    """

    def __init__(self, clock: Clock, streams: int) -> None:
        self._clock, self._most = clock, FAILURES * streams
        self._lock = threading.Lock()
        self._since, self._failures, self._arrived = clock.perf(), 0, 0

    def failed(self, arrived: int, trouble: str) -> None:
        """An attempt failed.

        Args:
            arrived: bytes that the transfer brought over so far. While they grow, failures are a bad line and no wall.

        Raises:
            OutOfReachError: that is enough.
        """
        with self._lock:
            if arrived > self._arrived:
                self._since, self._failures, self._arrived = self._clock.perf(), 0, arrived
            self._failures += 1
            if self._failures >= self._most and self._clock.perf() - self._since >= STORE_PATIENCE_S:
                raise OutOfReachError(trouble)


class StoreWay:
    """What one client knows of the way past the coordinator, from one transfer to the next."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._avoided_until = clock.perf()
        self._refusals = 0

    @property
    def open(self) -> bool:
        """Whether it is worth trying."""
        return self._clock.perf() >= self._avoided_until

    def refused(self, error: Refused, arrived: int) -> None:
        """The store said no to an address; bytes that arrived before that tell that others were good."""
        self._refusals = 1 if arrived else self._refusals + 1
        log.info("the object store refuses, asking the coordinator again: %s", error.message)
        if self._refusals >= REFUSALS:
            self.lost(error.message)

    def passed(self) -> None:
        """A whole blob came or went that way."""
        self._refusals = 0

    def lost(self, trouble: str) -> None:
        """From here the store cannot be used."""
        self._refusals = 0
        self._avoided_until = self._clock.perf() + STORE_AVOIDED_S
        log.warning(
            "the object store is out of reach (%s): for %.0f min blobs go through the coordinator",
            trouble,
            STORE_AVOIDED_S / 60,
        )
