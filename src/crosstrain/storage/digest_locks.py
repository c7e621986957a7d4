"""A lock for each blob that somebody works at, and for no other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from crosstrain.domain.ids import Digest


class DigestLocks:
    """Locks by digests; digests come from the network, so a lock lives only as long as somebody holds or wants it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[Digest, threading.Lock] = {}
        self._users: dict[Digest, int] = {}

    @contextmanager
    def __call__(self, digest: Digest) -> Iterator[None]:
        """Holds the lock of a blob during the block."""
        with self._lock:
            lock = self._locks.setdefault(digest, threading.Lock())
            self._users[digest] = self._users.get(digest, 0) + 1
        try:
            with lock:
                yield
        finally:
            with self._lock:
                self._users[digest] -= 1
                if not self._users[digest]:
                    del self._users[digest], self._locks[digest]

    def __len__(self) -> int:
        return len(self._locks)
