"""A blob on its way to the coordinator."""

from __future__ import annotations

from pathlib import Path

from crosstrain.domain.byte_ranges import ByteRanges, Span
from crosstrain.domain.ids import Digest
from crosstrain.wire import messages
from crosstrain.wire.answers import received
from crosstrain.wire.blobs import Progress
from crosstrain.wire.line import Line, Slice
from crosstrain.wire.move import Move
from crosstrain.wire.patience import Task, TryAgainError
from crosstrain.wire.shares import PartSize, Shares

TOO_LARGE = 413


class Upload(Move):
    """Sends what the coordinator does not hold.

    A part that is cut is held there as far as it came, which the coordinator alone knows; so after a cut it is asked before
    more is sent of that part.

    Attributes:
        whole: the coordinator has the blob.
    """

    what = "upload"

    def __init__(
        self,
        digest: Digest,
        path: Path,
        total: int,
        held: messages.Received,
        streams: int,
        size: PartSize,
        progress: Progress,
    ) -> None:
        super().__init__(digest, Shares(total, ByteRanges.of(held.ranges), streams), size, progress)
        self._path = path
        self._doubtful: list[Span] = []
        self._asking = False
        self._finishing = self._shares.complete
        self.whole = held.whole

    def next_task(self) -> Task | None:
        with self._lock:
            if self._stopped:
                return None
            if self._doubtful and not self._asking:
                self._asking = True
                return self._ask
            if self._finishing:  # all of it is there, and the coordinator was killed before it looked
                self._finishing = False
                return self._finish
            return super().next_task()

    def _request(self, line: Line, span: Span) -> ByteRanges:
        start, stop = span
        path = f"{self._digest}?offset={start}&total={self._shares.total}"
        body = Slice(self._path, start, stop - start, self._count)
        answer = line.request("PUT", path, {"Content-Type": "application/octet-stream"}, body, None)
        if answer.status == TOO_LARGE:
            with self._lock:
                if self._size.too_large(stop - start):
                    raise TryAgainError("a proxy takes smaller bodies only")
        try:
            return self._take(received(answer))
        except TryAgainError:
            with self._lock:
                self._size.cut(stop - start)  # it was sent in vain, and will be until the coordinator takes some
            raise

    def _ask(self, line: Line) -> None:
        doubtful = tuple(self._doubtful)
        try:
            held = self._take(received(line.request("GET", f"{self._digest}/received", {}, None, None)))
            with self._lock:
                for span in doubtful:
                    self._doubtful.remove(span)
                    super()._settle(span, held)
        finally:
            self._asking = False

    def _finish(self, line: Line) -> None:
        total = self._shares.total
        path = f"{self._digest}?offset={total}&total={total}"
        try:
            self._take(received(line.request("PUT", path, {}, Slice(self._path, total, 0, self._count), None)))
        except BaseException:
            self._finishing = True
            raise

    def _settle(self, span: Span, held: ByteRanges | None) -> None:
        if held is None:
            self._doubtful.append(span)
        else:
            super()._settle(span, held)

    def _take(self, held: messages.Received) -> ByteRanges:
        if held.whole:
            self.whole = True
            return ByteRanges().add(0, self._shares.total)
        return ByteRanges.of(held.ranges)
