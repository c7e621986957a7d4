"""A file that comes in pieces: in any order, from several writers and processes at once, any of which may die at any byte.

    NAME.part   the bytes, of full length from the beginning, with holes
    NAME.held   which of them came, as one line of JSON

Every byte is written once and noted after it was written. So what is noted is what came, a writer that was thought dead
changes nothing, and the SHA-256 can follow the growing front of the file instead of beginning at the end. Neither file is
synchronised while they grow: a power cut may leave notes of bytes that are gone, and then the digest tells.

A writer that is stopped in the middle of a write holds the file's lock. The next one that opens the file then goes on with a copy
under the same name, and the stopped one has a file that nobody looks at.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Self

from crosstrain.domain.byte_ranges import ByteRanges
from crosstrain.domain.ids import Digest
from crosstrain.file_lock import FileLock
from crosstrain.partial_note import Note, Record, read_note
from crosstrain.pieces import Moved, receive_at, write_at

log = logging.getLogger(__name__)

READ_BYTES = 1 << 20
NOTED_BYTES = (1 << 19, 4 << 20)
"""Of what comes on a connection, at least and at most so many are taken under one lock and then noted,"""
NOTED_SHARE = 64
"""and between the two so large a part of the file: a writer that is killed loses no more of it."""
SYNC_BYTES = 16 << 20
"""How many bytes the front grows before the system is told to send them to the disk."""


class PartialFile:
    """One writer's hold on such a file, which is begun if it is not there.

    Args:
        base: path without the ending.

    Raises:
        OSError: from any method, as the file system says.
    """

    def __init__(self, base: Path, digest: Digest, total: int) -> None:
        self._part, note = paths(base)
        self.digest, self.total = digest, total
        self._handle, self._lock = _open(self._part, note)
        self._note_path, self._note = note, Note(note)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)
        self._note.close()

    @property
    def record(self) -> Record | None:
        """What is there now; None if the file was finished or discarded meanwhile."""
        with self.locked() as record:
            return record

    def write(self, offset: int, data: bytes | memoryview) -> Record | None:
        """Puts bytes where they belong; those that are there already stay as they are. `record` afterwards."""
        with self.locked() as record:
            if record is None:
                return None
            held = record.held
            try:
                for start, stop in record.held.missing(offset, offset + len(data)):
                    for place, count in self._put(memoryview(data)[start - offset : stop - offset], start):
                        held = held.add(place, place + count)
            finally:
                newest = self._noted(record, held)
            return newest

    def receive(
        self, connection: socket.socket, offset: int, count: int, wait_s: float = 0.0
    ) -> tuple[Record | None, Moved]:
        """As `write`, of what comes on a connection (`receive_at`): at most what is noted at a time, and only as far as all of
        it is there already or none. Without a record nothing is taken."""
        count = min(count, noted_bytes(self.total))
        with self.locked() as record:
            if record is None:
                return None, Moved()
            first, last = next(record.held.missing(offset, offset + count), (offset + count, 0))
            if first > offset:
                return record, receive_at(connection, None, offset, first - offset, wait_s)
            moved = receive_at(connection, self._handle, offset, last - offset, wait_s)
            try:
                return self._noted(record, record.held.add(offset, offset + moved.written)), moved
            except OSError as error:  # the bytes are off the connection all the same, and its reader counts them
                return record, replace(moved, file_error=error.errno or errno.EIO)

    def _noted(self, record: Record, held: ByteRanges) -> Record:
        newest = record if held == record.held else replace(record, held=held)
        if newest is not record and self._is_named:  # else we were thought dead, and the note is of a copy
            self._note.write(newest)
        return newest

    def _put(self, view: memoryview, place: int) -> Iterator[tuple[int, int]]:
        """Writes at `place`; yields place and length of what was written."""
        while view:
            count = write_at(self._handle, view, place)
            yield place, count
            view, place = view[count:], place + count

    def read(self, buffer: memoryview, offset: int) -> int:
        """Fills the buffer from `offset` on; bytes read."""
        return os.preadv(self._handle, [buffer], offset)

    def start_writeback(self, start: int, stop: int) -> None:
        """As the function of that name."""
        start_writeback(self._handle, start, stop)

    def publish(self, target: Path) -> None:
        """Makes the file durable and gives it its name; the caller holds the lock and knows that the digest is right."""
        os.fsync(self._handle)
        self._part.replace(target)
        self._note_path.unlink(missing_ok=True)

    def discard(self) -> None:
        """Throws all of it away; the caller holds the lock."""
        self._part.unlink()
        self._note_path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[Record | None]:
        """Holds the file's lock, against threads and processes; gives `record`.

        Who holds it first looks whether the name still means this file, so that nobody writes into a published one. None too
        if another process holds the lock and does not go on; whoever opens the file again gets past that.
        """
        with self._lock.held() as held:
            mine = _named(self._part, self._handle) if held else None
            yield None if mine is None else self._current(mine.st_size)

    @property
    def _is_named(self) -> bool:
        return _named(self._part, self._handle) is not None

    def _current(self, size: int) -> Record | None:
        """The record of this very file: one without its full length was just made, and older notes are not its own."""
        record = self._note.read() if size == self.total else None
        if record is None:
            record = Record(self.digest, self.total)
            self._note.write(record)
            os.ftruncate(self._handle, self.total)
        return record if (record.digest, record.total) == (self.digest, self.total) else None


_copying = threading.Lock()


def _open(part: Path, note: Path) -> tuple[int, FileLock]:
    """The file, which is made if it is not there; a copy if somebody holds it who does not go on."""
    handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    lock = FileLock(handle)
    with lock.held() as held:
        if held:
            return handle, lock
    try:
        with _copying:
            if _named(part, handle):  # else another thread made one already
                log.warning(
                    "%s is held by a process that does not go on: is one stopped? Going on with a copy of it", part
                )
                _copy_held(handle, part, read_note(note))
    finally:
        os.close(handle)
    return _open(part, note)


def _named(part: Path, handle: int) -> os.stat_result | None:
    """What the system says of this file; None if the name means another one, or none."""
    mine = os.fstat(handle)
    try:
        return mine if os.path.samestat(mine, part.stat()) else None
    except FileNotFoundError:
        return None


def _copy_held(handle: int, part: Path, record: Record | None) -> None:
    """Puts another file in the place of this one, with the bytes that are noted."""
    copy = part.with_suffix(".copy")
    try:
        with copy.open("wb") as file:
            if record is not None:
                file.truncate(record.total)
                for start, stop in record.held.spans:
                    file.seek(start)
                    for place in range(start, stop, READ_BYTES):
                        file.write(os.pread(handle, min(READ_BYTES, stop - place), place))
        copy.replace(part)
    finally:
        copy.unlink(missing_ok=True)


class PrefixHash:
    """SHA-256 of a partial file, as far as it is there without a gap; not for several threads at once."""

    def __init__(self) -> None:
        self._begin("")

    def _begin(self, identity: str) -> None:
        self._identity = identity
        self._sha = hashlib.sha256()
        self._position = self._flushed = 0

    def advance(self, file: PartialFile, record: Record) -> None:
        """Takes in what came since the last call."""
        if record.identity != self._identity:
            self._begin(record.identity)
        front = record.held.prefix
        buffer = memoryview(bytearray(max(0, min(READ_BYTES, front - self._position))))
        while self._position < front:
            count = file.read(buffer[: front - self._position], self._position)
            if not count:
                break  # cut short by somebody else: the digest tells
            self._sha.update(buffer[:count])
            self._position += count
            if self._position - self._flushed >= SYNC_BYTES:
                file.start_writeback(self._flushed, self._position)
                self._flushed = self._position

    def hexdigest(self) -> Digest:
        """Of what was taken in."""
        return Digest(self._sha.hexdigest())


def start_writeback(handle: int, start: int, stop: int) -> None:
    """Has the system begin to send a part of a file to the disk, without waiting for it: then the fsync at the end finds little
    to do. A hint: errors are those of the fsync, and where there is no sync_file_range(2) nothing happens."""
    if _SYNC_FILE_RANGE is not None:
        _SYNC_FILE_RANGE(handle, start, stop - start, _WRITE)


def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    found = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if found is not None:
        found.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return found


_SYNC_FILE_RANGE = _sync_file_range()
_WRITE = 2
"""SYNC_FILE_RANGE_WRITE of linux/fs.h."""


def look(base: Path) -> Record | None:
    """What is noted of a file that is on its way; None if there is none."""
    part, note = paths(base)
    try:
        handle = os.open(part, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        with FileLock(handle, shared=True).held():  # not while the note is written; whoever does not go on writes none
            return read_note(note)
    finally:
        os.close(handle)


def discard(base: Path) -> None:
    """Removes what is there of a file; nothing has to be."""
    for path in paths(base):
        path.unlink(missing_ok=True)


def noted_bytes(total: int) -> int:
    """How much of a file of so many bytes is taken off a connection before it is noted."""
    least, most = NOTED_BYTES
    return min(most, max(least, total // NOTED_SHARE))


def paths(base: Path) -> tuple[Path, Path]:
    """The two files."""
    return base.with_name(base.name + ".part"), base.with_name(base.name + ".held")
