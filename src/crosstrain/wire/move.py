"""One blob on its way: what the workers of a transfer share."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from functools import partial

from crosstrain.domain.byte_ranges import ByteRanges, Span
from crosstrain.domain.ids import Digest
from crosstrain.wire.blobs import Progress
from crosstrain.wire.line import Line, LineBrokenError
from crosstrain.wire.patience import Task, TryAgainError
from crosstrain.wire.shares import PartSize, Shares


class Move(ABC):
    """Deals requests out until all bytes are there; `_request` says what a request is.

    Attributes:
        what: download or upload.
        moved: bytes that went over the lines, wanted or not.
    """

    what = ""

    def __init__(self, digest: Digest, shares: Shares, size: PartSize, progress: Progress) -> None:
        self._digest, self._shares, self._size, self._progress = digest, shares, size, progress
        self._before = shares.held.length
        self._lock = threading.RLock()
        self._stopped = False
        self.moved = 0

    def next_task(self) -> Task | None:
        """The next request; None if there is none now."""
        with self._lock:
            if self._stopped:
                return None
            span = self._shares.take(self._size.now)
            return None if span is None else partial(self._do, span)

    @property
    def arrived(self) -> int:
        """Bytes that this transfer brought where they belong, as far as is known. What was sent and refused, or came a second
        time, is none of them: it would pass for progress, and be repeated without pauses."""
        return self._shares.held.length - self._before

    def stop(self) -> None:
        """No more requests."""
        self._stopped = True

    def look(self) -> None:
        """Tells the progress; called by the thread that waits for the transfer."""
        self._progress(self._shares.held.length, self._shares.total)

    def _do(self, span: Span, line: Line) -> None:
        length = span[1] - span[0]
        held = None
        try:
            held = self._request(line, span)
            if span in held.missing(*span):
                raise TryAgainError(f"the answer is well and brought none of the bytes {span[0]} to {span[1] - 1}")
        except LineBrokenError:
            with self._lock:
                self._size.cut(length)
            raise
        else:
            with self._lock:
                self._size.passed()
        finally:
            with self._lock:
                self._settle(span, held)

    @abstractmethod
    def _request(self, line: Line, span: Span) -> ByteRanges:
        """Moves the bytes, or some of them; what is known to be there afterwards."""

    def _settle(self, span: Span, held: ByteRanges | None) -> None:
        """A request is over; `held` is None if it failed."""
        self._shares.settle(span, self._shares.held if held is None else self._shares.held.union(held))

    def _count(self, count: int) -> None:
        with self._lock:
            self.moved += count
