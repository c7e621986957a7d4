"""Parts of an upload that come in: written as they come, hashed as far as they are there, a blob when all are."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

from crosstrain.disk import disk_faults, sync_directory
from crosstrain.domain.ids import Digest
from crosstrain.domain.timeouts import VERIFY_WAIT_S
from crosstrain.errors import IntegrityError, Refused
from crosstrain.partial_file import PartialFile, PrefixHash
from crosstrain.partial_note import Record
from crosstrain.pieces import Moved, system_error


class Following:
    """The hash of an upload, which one thread at a time takes further."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.hash = PrefixHash()


class Unneeded:
    """A part of a blob that is there."""

    def __init__(self, total: int) -> None:
        self._total = total

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def write(self, _data: bytes | memoryview) -> bool:
        return False

    def receive(self, _connection: socket.socket, _count: int, _wait_s: float = 0.0) -> Moved | None:
        return None

    def finish(self) -> int:
        return self._total


class Upload:
    """A part (`object_store.Part`) that is written into the upload's file.

    Args:
        place: where the blob will be.
        over: called when the upload ended, well or not.
    """

    def __init__(
        self, file: PartialFile, place: Path, offset: int, following: Following, over: Callable[[], object]
    ) -> None:
        self._file, self._place, self._offset = file, place, offset
        self._following, self._over = following, over
        self._refused = 0
        """The disk's word, as an error number, about bytes that were taken off a connection."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *rest: object) -> None:
        self._file.__exit__(*rest)

    def write(self, data: bytes | memoryview) -> bool:
        with disk_faults(self._place):
            self._require_accepted()
            self._require_room(len(data))
            record = self._file.write(self._offset, data)
        self._offset += len(data)
        return record is not None

    def receive(self, connection: socket.socket, count: int, wait_s: float = 0.0) -> Moved | None:
        with disk_faults(self._place):
            self._require_accepted()
            left = self._file.total - self._offset
            if left <= 0:
                self._require_room(count)
            record, moved = self._file.receive(connection, self._offset, min(count, left), wait_s)
        self._offset += moved.received
        self._refused = moved.file_error
        return None if record is None else moved

    def _require_room(self, count: int) -> None:
        """Raises IntegrityError: the blob has no place for so many bytes more."""
        if (stop := self._offset + count) > self._file.total:
            self._discard()
            raise wrong(self._file.digest, f"{self._file.total:,} bytes", f"at least {stop:,}")

    def _require_accepted(self) -> None:
        if self._refused:
            raise system_error(self._refused)

    def finish(self) -> int:
        with disk_faults(self._place):
            self._require_accepted()
            record = self._file.record
            if record is None or self._place.is_file():
                with self._file.locked() as current:
                    return self._overtaken(current)
            if not record.complete:
                self._follow(record)
                return record.held.length
            if not self._following.lock.acquire(timeout=VERIFY_WAIT_S):
                raise _verifying(self._file.digest)
            try:
                return self._complete()
            finally:
                self._following.lock.release()
                self._over()

    def _follow(self, record: Record) -> None:
        if self._following.lock.acquire(blocking=False):  # else somebody is at it
            try:
                self._following.hash.advance(self._file, record)
            finally:
                self._following.lock.release()

    def _complete(self) -> int:
        record = self._file.record
        if record is not None:
            self._following.hash.advance(self._file, record)  # long, and without the file's lock
        with self._file.locked() as current:
            if current is None or self._place.is_file():
                return self._overtaken(current)
            if current != record:
                raise _verifying(self._file.digest)  # begun anew by another process
            if (found := self._following.hash.hexdigest()) != self._file.digest:
                self._file.discard()
                raise wrong(self._file.digest, "bytes of that SHA-256", found)
            self._place.parent.mkdir(parents=True, exist_ok=True)
            self._file.publish(self._place)
            settle(self._place)
        return self._file.total

    def _overtaken(self, record: Record | None) -> int:
        """The blob came by another way, or the upload was discarded, during this part."""
        if not self._place.is_file():
            raise IntegrityError(f"The upload of {self._file.digest} was discarded while it ran.", "send it again")
        if record is not None:
            self._file.discard()
        self._over()
        return self._file.total

    def _discard(self) -> None:
        with self._file.locked() as record:
            if record is not None:
                self._file.discard()


def settle(place: Path) -> None:
    """Makes the name of a blob durable."""
    sync_directory(place.parent)
    sync_directory(place.parent.parent)


def wrong(digest: Digest, expected: str, found: str) -> IntegrityError:
    return IntegrityError(f"Upload of {digest}: expected {expected}, found {found}.", "send it again from the start")


def missing(digest: Digest, held: int, total: int) -> Refused:
    return Refused(
        f"Of blob {digest[:12]} {held:,} of {total:,} bytes are there.", "send what is missing", kind="parts-missing"
    )


def _verifying(digest: Digest) -> Refused:
    return Refused(f"Upload {digest[:12]} is being verified.", "ask again", kind="verifying", status=503)
