"""A blob on its way from the coordinator."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Callable
from pathlib import Path

from crosstrain.disk import disk_faults, sync_directory
from crosstrain.domain.byte_ranges import ByteRanges, Span
from crosstrain.domain.ids import Digest
from crosstrain.domain.timeouts import MORE_BODY_S
from crosstrain.errors import EnvironmentFault, Refused
from crosstrain.partial_file import PartialFile, PrefixHash, discard, look
from crosstrain.pieces import Moved, receive_at, system_error
from crosstrain.wire.answers import raise_for
from crosstrain.wire.blobs import Progress
from crosstrain.wire.client import refusal_of
from crosstrain.wire.line import Answer, Line
from crosstrain.wire.move import Move
from crosstrain.wire.patience import Task, TryAgainError
from crosstrain.wire.shares import PartSize, Shares

log = logging.getLogger(__name__)

WITH_BYTES = (200, 206)
"""Answers that carry the blob, or a range of it."""


class Download(Move):
    """Fetches what is not there yet, by byte ranges into a file of full length.

    Where the way ignores ranges and sends all of it, it is taken in one request, and of what is there already nothing is
    written again.

    Args:
        path: of the blob, below the addresses of the lines.

    Raises:
        EnvironmentFault: the disk does not let us, from any method.
    """

    what = "download"

    def __init__(
        self, digest: Digest, target: Path, total: int, streams: int, size: PartSize, progress: Progress, path: str
    ) -> None:
        self._target, self._total, self._path = target, total, path
        with disk_faults(target, every=True):
            record = look(target)
            if record is not None and (record.digest, record.total) != (digest, total):
                discard(target)
                record = None
        super().__init__(digest, Shares(total, record.held if record else ByteRanges(), streams), size, progress)
        self._hash = PrefixHash()
        self._whole = self._taking_whole = False

    def next_task(self) -> Task | None:
        with self._lock:
            if not self._whole:
                return super().next_task()
            if self._stopped or self._taking_whole or self._shares.complete:
                return None
            self._taking_whole = True
            return self._take_whole

    def look(self) -> None:
        with disk_faults(self._target, every=True), self._part() as part:
            self._follow(part)
        super().look()

    def finish(self) -> bool:
        """Puts the file at its target if it is the blob; returns whether it is."""
        with disk_faults(self._target, every=True), self._part() as part:
            self._follow(part)
            if self._hash.hexdigest() != self._digest:
                return False
            with part.locked() as record:
                if record is None:
                    raise self._gone()
                part.publish(self._target)
            sync_directory(self._target.parent)
        return True

    def _follow(self, part: PartialFile) -> None:
        record = part.record
        if record is None:
            raise self._gone()
        self._hash.advance(part, record)

    def _request(self, line: Line, span: Span) -> ByteRanges:
        with self._part() as part:
            sink = _Into(part, span, self._target, self._moved)
            try:
                answer = line.request("GET", self._path, {"Range": f"bytes={span[0]}-{span[1] - 1}"}, None, sink)
            except RangeIgnoredError:
                self._take_whole_from_now_on()
                raise TryAgainError("ranges are ignored") from None
            _require_bytes(answer)
            return sink.came

    def _take_whole_from_now_on(self) -> None:
        with self._lock:
            known, self._whole = self._whole, True
        if not known:  # each of the streams finds it out
            log.warning("the way to the coordinator ignores byte ranges: one stream, which starts anew when it is cut")

    def _take_whole(self, line: Line) -> None:
        try:
            with self._part() as part:
                sink = _Into(part, (0, self._total), self._target, self._moved)
                _require_bytes(line.request("GET", self._path, {}, None, sink))
        finally:
            self._taking_whole = False

    def _moved(self, held: ByteRanges, count: int) -> None:
        with self._lock:
            self._shares.held = self._shares.held.union(held)
            self.moved += count

    def _part(self) -> PartialFile:
        with disk_faults(self._target, every=True):
            return PartialFile(self._target, self._digest, self._total)

    def _gone(self) -> EnvironmentFault:
        return EnvironmentFault(
            f"The file {self._target}.part was removed while it was written.", "let one process work in that directory"
        )


class RangeIgnoredError(Exception):
    """The answer to a range is the whole blob."""


class _Into:
    """Pours one response into the file (`line.Sink`)."""

    def __init__(self, part: PartialFile, span: Span, path: Path, moved: Callable[[ByteRanges, int], None]) -> None:
        self._part, self._span, self._path, self._moved = part, span, path, moved
        self._offset = span[0]
        self.came = ByteRanges()

    def begin(self, answer: Answer) -> bool:
        if answer.status not in WITH_BYTES:
            return False
        start, stop = self._span
        if answer.status == 200 and (start, stop) != (0, self._part.total):
            raise RangeIgnoredError
        if answer.status == 206:
            stop = self._end_of(answer.headers.get("content-range", ""))
        length = answer.headers.get("content-length")
        # One that is chunked besides has no length that counts (RFC 9112, 6.3).
        codings = {name: answer.headers.get(name, "identity") for name in ("content-encoding", "transfer-encoding")}
        if length != str(stop - start) or set(codings.values()) != {"identity"}:
            found = ", ".join(f"{name} {coding}" for name, coding in codings.items())
            raise _bad(f"{stop - start} bytes as they are", f"content-length {length}, {found}")
        return True

    def write(self, data: memoryview) -> None:
        with disk_faults(self._path, every=True):
            record = self._part.write(self._offset, data)
        self._offset += len(data)
        if record is not None:
            self.came = record.held
            self._moved(record.held, len(data))

    def receive(self, connection: socket.socket, count: int) -> Moved:
        with disk_faults(self._path, every=True):
            record, moved = self._part.receive(connection, self._offset, count, MORE_BODY_S)
            if moved.file_error:
                raise system_error(moved.file_error)
        if record is None:  # as with `write`: whoever threw the file away is told at the end
            return receive_at(connection, None, 0, count)
        self._offset += moved.received
        self.came = record.held
        self._moved(record.held, moved.received)
        return moved

    def _end_of(self, header: str) -> int:
        """The byte behind the last of a range, which may be shorter than what was asked for."""
        match = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", header)
        start, stop = self._span
        if match and int(match[1]) == start <= int(match[2]) < stop and int(match[3]) == self._part.total:
            return int(match[2]) + 1
        raise _bad(f"bytes {start}-{stop - 1}/{self._part.total}", f"Content-Range {header!r}")


def _require_bytes(answer: Answer) -> None:
    """Raises what an answer without bytes of the blob stands for: one that is no error either, such as 204, would be asked for
    again without a pause and without end."""
    raise_for(answer)
    if answer.status not in WITH_BYTES:
        raise refusal_of(answer.status, answer.body)


def _bad(expected: str, found: str) -> Refused:
    return Refused(
        f"Expected {expected}, found {found}.",
        "a proxy on the way breaks range requests; ask for it to pass them on",
        kind="bad-range",
    )
