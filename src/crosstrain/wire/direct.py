"""A blob on its way straight into the object store, in parts at addresses that the coordinator signed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from crosstrain.domain.byte_ranges import ByteRanges, Span
from crosstrain.domain.ids import Digest
from crosstrain.errors import Refused
from crosstrain.wire.blobs import Progress
from crosstrain.wire.client import RETRIED_STATUS
from crosstrain.wire.line import Answer, Line, Slice
from crosstrain.wire.messages import PartAddress
from crosstrain.wire.move import Move
from crosstrain.wire.patience import TryAgainError
from crosstrain.wire.shares import FixedShares, PartSize


class DirectUpload(Move):
    """Puts the parts that are missing. One that is cut is not there at all, and sent again.

    Args:
        parts: of one service; what they do not name of the blob counts as there.
        beyond: bytes of the blob that are missing besides.
    """

    what = "upload"

    def __init__(
        self,
        digest: Digest,
        path: Path,
        total: int,
        parts: Sequence[PartAddress],
        beyond: int,
        size: PartSize,
        progress: Progress,
    ) -> None:
        spans = [(part.offset, part.offset + part.length) for part in parts]
        super().__init__(digest, FixedShares(total, spans), size, progress)
        self._path, self._beyond = path, beyond
        self._targets = {span: target_of(part.address) for span, part in zip(spans, parts, strict=True)}
        self._under_way: dict[Span, int] = {}

    def look(self) -> None:
        """Tells what arrived and what is under way, so that slow lines are seen to move; what is cut is taken back."""
        with self._lock:
            done = self._shares.held.length + sum(self._under_way.values()) - self._beyond
        self._progress(min(done, self._shares.total), self._shares.total)

    def _request(self, line: Line, span: Span) -> ByteRanges:
        start, stop = span

        def sent(count: int) -> None:
            self._count(count)
            with self._lock:
                self._under_way[span] += count

        with self._lock:
            self._under_way[span] = 0
        try:
            answer = line.request("PUT", self._targets[span], {}, Slice(self._path, start, stop - start, sent), None)
            _require_taken(answer)
        finally:
            with self._lock:
                del self._under_way[span]
        return ByteRanges().add(start, stop)


def base_of(address: str) -> str:
    """Scheme, host and port of an address."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"


def target_of(address: str) -> str:
    """What follows them."""
    parts = urlsplit(address)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def _require_taken(answer: Answer) -> None:
    if 200 <= answer.status < 300:
        return
    said = re.search(rb"<Code>([^<]{1,100})</Code>", answer.body)
    trouble = f"the object store says {answer.status} {said[1].decode('ascii', 'replace') if said else answer.reason}"
    if answer.status in RETRIED_STATUS:
        raise TryAgainError(trouble)
    raise Refused(
        trouble, "see the bucket's policy and the coordinator's clock", kind="object-store", status=answer.status
    )
