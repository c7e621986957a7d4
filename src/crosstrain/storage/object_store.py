"""Immutable blobs named by the SHA-256 of their bytes, and resumable uploads that become blobs only when they match.

    ab/ab12...                 a blob: durable, verified when it came in, never written again
    uploads/ab12....part       a blob still on its way, and
    uploads/ab12....held       which bytes of it came

A blob appears by rename, so a crash leaves either a whole blob or an upload to continue (partial_file.py). Whether an
upload is right, its digest at the end says, and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import socket
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from crosstrain.disk import disk_faults
from crosstrain.domain.byte_ranges import ByteRanges
from crosstrain.domain.ids import Digest
from crosstrain.domain.parts import PartsLeft
from crosstrain.domain.retention import Stored
from crosstrain.domain.room import Room
from crosstrain.errors import IntegrityError
from crosstrain.partial_file import PartialFile, discard, look
from crosstrain.pieces import Moved
from crosstrain.storage.durable import require_space, room_of
from crosstrain.storage.upload import Following, Unneeded, Upload, missing, settle, wrong

_DIGEST = re.compile(r"[0-9a-f]{64}")
LOST = "send it again, or put it back from a backup"
"""What to do about a blob that is not there."""


def digest_file(path: Path) -> Digest:
    """SHA-256 of a file's bytes, at about 1.5 GB/s on one core."""
    with path.open("rb") as file:
        return Digest(hashlib.file_digest(file, "sha256").hexdigest())


class ObjectStore(Protocol):
    """Where blobs are. All methods may be called from several threads, twice, and in any order.

    Raises:
        IntegrityError: from any method given something that is not a SHA-256 in lower-case hexadecimal.
    """

    def has(self, digest: Digest) -> bool:
        """Whether the whole blob is there."""
        ...

    def knows(self, digest: Digest) -> bool:
        """Whether the blob is there as far as this process knows, without asking a service: for transactions. False also of one that
        it never asked for (`has`), put or fetched."""
        ...

    def size(self, digest: Digest) -> int:
        """Bytes. Raises IntegrityError if the blob is not there."""
        ...

    def path(self, digest: Digest) -> Path:
        """A file with the blob's bytes, not to be changed. To fetch it may take minutes. Raises IntegrityError if the blob is
        not there, or no longer what it was."""
        ...

    def ready(self, digest: Digest) -> Path | None:
        """As `path`, if nothing has to be fetched for it."""
        ...

    def address(self, digest: Digest) -> str | None:
        """Where anybody who knows it can get the blob by HTTP for some hours, past the coordinator; None if nowhere."""
        ...

    def adopt(self, path: Path, digest: Digest | None = None) -> Digest:
        """Takes a finished file in and names it; `path` is gone afterwards.

        Args:
            digest: its SHA-256, where whoever made the file knows it.

        Raises:
            EnvironmentFault: the file is not on the store's file system, or the disk refuses.
        """
        ...

    def held(self, digest: Digest) -> ByteRanges:
        """Which bytes of an upload came; all of them for a blob that is there."""
        ...

    def open_part(self, digest: Digest, offset: int, total: int) -> Part:
        """Takes bytes of an upload from `offset` on; parts come in any order, several at once, and more than once.

        Args:
            total: size of the whole blob, bytes.

        Raises:
            IntegrityError: an upload of that name is under way, or done, with another size.
            EnvironmentFault: the disk cannot hold it.
        """
        ...

    def receive(self, digest: Digest, offset: int, chunks: Iterable[bytes], total: int) -> int:
        """A part from `chunks`, to its end; what the iterator raises passes through. As `Part.finish`, but at the size of the
        upload the blob is there."""
        ...

    @property
    def direct_from(self) -> int | None:
        """From so many bytes on, uploads may go past the coordinator (`parts_left`); None if they never may."""
        ...

    def parts_left(self, digest: Digest, total: int) -> PartsLeft | None:
        """Where what is missing of a blob may be put, past the coordinator, and begins that; None if it should come through
        the coordinator: always, or because more of it came that way already.

        Raises:
            IntegrityError: there is one of another size.
        """
        ...

    def complete(self, digest: Digest, total: int) -> None:
        """Says that all of an upload came, whichever way; afterwards the blob is there, verified and durable. May take
        minutes.

        Raises:
            Refused: `parts-missing`, not all of it is there.
            IntegrityError: the bytes do not have this digest or length; what was held is discarded.
            EnvironmentFault: the disk cannot hold it.
        """
        ...

    def verify(self, digest: Digest) -> None:
        """Reads the blob again. Raises IntegrityError if it is missing or has changed."""
        ...

    def delete(self, digest: Digest) -> None:
        """Removes the blob; it need not be there. One short request at most, so that a transaction may be around it."""
        ...

    def discard(self, digest: Digest) -> None:
        """Removes what came of an upload; nothing has to be there, and a blob stays."""
        ...

    def digests(self) -> Iterator[Digest]:
        """All whole blobs, ascending."""
        ...

    def stored(self) -> Iterator[Stored]:
        """All whole blobs and all uploads on their way."""
        ...

    def sweep(self) -> None:
        """Removes what is left of uploads whose blob is there."""
        ...

    def room(self) -> Room:
        """What may still be put in; asks no service."""
        ...

    def close(self) -> None:
        """Ends what takes long, from any thread: whatever waits for a service then, or asks it later, fails soon."""
        ...


class Part(Protocol):
    """A part of an upload that is coming in; used by one thread at a time. Bytes that came before an error count."""

    def write(self, data: bytes | memoryview) -> bool:
        """The next bytes; False if there is no use in more, because the blob was finished or discarded meanwhile.

        Raises:
            IntegrityError: more bytes than the blob has; what was held is discarded.
            EnvironmentFault: the disk cannot hold them.
        """
        ...

    def receive(self, connection: socket.socket, count: int, wait_s: float = 0.0) -> Moved | None:
        """As `write`, of the next bytes that come on a connection (`pieces.receive_at`), at most `count`. What the disk refuses is
        raised by the next call of this part."""
        ...

    def finish(self) -> int:
        """Says that the part is over.

        Returns:
            Bytes of the upload that are held. At its size all of it is verified and durable; where the blob is not there yet
            (`ObjectStore.has`), `ObjectStore.complete` brings it there.

        Raises:
            IntegrityError: the bytes do not have this digest; what was held is discarded.
            Refused: 503 `verifying`, another request is verifying the blob; ask again.
            EnvironmentFault: the disk cannot hold it.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LocalObjectStore:
    """An object store in a directory, which is made when something first comes in."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._uploads = directory / "uploads"
        self._following: dict[Digest, Following] = {}

    def has(self, digest: Digest) -> bool:
        return self._place(digest).is_file()

    def knows(self, digest: Digest) -> bool:
        return self.has(digest)

    def size(self, digest: Digest) -> int:
        return self.path(digest).stat().st_size

    def path(self, digest: Digest) -> Path:
        if not self.has(digest):
            raise IntegrityError(f"Expected blob {digest} in {self.directory}, found none.", LOST)
        return self._place(digest)

    def ready(self, digest: Digest) -> Path | None:
        return self._place(digest) if self.has(digest) else None

    def address(self, _digest: Digest) -> str | None:
        return None

    def adopt(self, path: Path, digest: Digest | None = None) -> Digest:
        digest = digest or digest_file(path)
        self.take(digest, path)
        return digest

    def take(self, digest: Digest, path: Path) -> None:
        """Takes in a file that was found to be the blob; as `adopt`."""
        if self.has(digest):
            path.unlink()
            return
        with disk_faults(self._place(digest)):
            with path.open("rb") as file:
                os.fsync(file.fileno())
            place = self._place(digest)
            place.parent.mkdir(parents=True, exist_ok=True)
            path.replace(place)
            settle(place)

    def held(self, digest: Digest) -> ByteRanges:
        if self.has(digest):
            return ByteRanges().add(0, self.size(digest))
        record = look(self._upload(digest))
        return record.held if record else ByteRanges()

    def open_part(self, digest: Digest, offset: int, total: int) -> Part:
        if self.has(digest):
            if (size := self.size(digest)) != total:
                raise wrong(digest, f"{total:,} bytes", f"{size:,}")
            return Unneeded(total)
        base = self._upload(digest)
        record = look(base)
        if record is not None and record.total != total:
            discard(base)
            raise wrong(digest, f"{total:,} bytes", f"{record.total:,}")
        with disk_faults(self._uploads):
            self._uploads.mkdir(parents=True, exist_ok=True)
            require_space(self._uploads, total - (record.held.length if record else 0))
            following = self._following.setdefault(digest, Following())
            over = partial(self._following.pop, digest, None)
            return Upload(PartialFile(base, digest, total), self._place(digest), offset, following, over)

    def receive(self, digest: Digest, offset: int, chunks: Iterable[bytes], total: int) -> int:
        with self.open_part(digest, offset, total) as part:
            for chunk in chunks:
                if not part.write(chunk):
                    break
            return part.finish()

    @property
    def direct_from(self) -> int | None:
        return None

    def parts_left(self, _digest: Digest, _total: int) -> PartsLeft | None:
        return None

    def complete(self, digest: Digest, total: int) -> None:
        if (held := self.receive(digest, total, (), total)) < total:
            raise missing(digest, held, total)

    def verify(self, digest: Digest) -> None:
        found = digest_file(self.path(digest))
        if found != digest:
            raise IntegrityError(f"Blob {digest} in {self.directory} has changed: its SHA-256 is {found}.")

    def delete(self, digest: Digest) -> None:
        self._place(digest).unlink(missing_ok=True)
        self.discard(digest)

    def discard(self, digest: Digest) -> None:
        discard(self._upload(digest))
        self._following.pop(digest, None)

    def digests(self) -> Iterator[Digest]:
        names = (path.name for path in self.directory.glob("[0-9a-f][0-9a-f]/*"))
        return iter(sorted(Digest(name) for name in names if _DIGEST.fullmatch(name)))

    def stored(self) -> Iterator[Stored]:
        for digest in self.digests():
            with contextlib.suppress(FileNotFoundError):
                yield Stored(digest, self._place(digest).stat().st_size, whole=True)
        for part in self._uploads.glob("*.part"):
            if _DIGEST.fullmatch(part.stem) and (record := look(part.with_suffix(""))) is not None:
                yield Stored(Digest(part.stem), record.held.length, whole=False)

    def sweep(self) -> None:
        """Nothing: an upload becomes the blob by a rename."""

    def room(self) -> Room:
        return room_of(self.directory)

    def close(self) -> None:
        """Nothing: a disk answers soon."""

    def _place(self, digest: Digest) -> Path:
        return self.directory / checked(digest)[:2] / digest

    def _upload(self, digest: Digest) -> Path:
        return self._uploads / checked(digest)


def checked(digest: Digest) -> str:
    """Digests come from the network and become file names."""
    if not _DIGEST.fullmatch(digest):
        raise IntegrityError(f"Expected a SHA-256 in lower-case hexadecimal, found {digest[:80]!r}.")
    return digest
