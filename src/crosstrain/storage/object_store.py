"""Immutable blobs named by the SHA-256 of their bytes, and resumable uploads that become blobs only when they match.

    ab/ab12...                 a blob: durable, verified when it came in, never written again
    uploads/ab12....part       the first bytes of a blob still on its way

A blob appears by rename, so a crash leaves either a whole blob or a part to continue. Parts are not synchronised while
they grow: a power cut may fill one with zeros, and then the digest at its end discards it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol, Self

from crosstrain.domain.ids import Digest
from crosstrain.errors import IntegrityError, Refused
from crosstrain.storage.durable import disk_faults, require_space, sync_directory

_DIGEST = re.compile(r"[0-9a-f]{64}")


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

    def size(self, digest: Digest) -> int:
        """Bytes. Raises IntegrityError if the blob is not there."""
        ...

    def path(self, digest: Digest) -> Path:
        """A file with the blob's bytes, not to be changed. Raises IntegrityError if the blob is not there."""
        ...

    def adopt(self, path: Path) -> Digest:
        """Takes a finished file in and names it; `path` is gone afterwards.

        Raises:
            EnvironmentFault: the file is not on the store's file system, or the disk refuses.
        """
        ...

    def received(self, digest: Digest) -> int:
        """Bytes held of an upload: where the sender continues. The blob's size once it is whole."""
        ...

    def append(self, digest: Digest, offset: int, chunks: Iterable[bytes], total: int) -> int:
        """Continues an upload; bytes that came before an error count.

        Args:
            offset: of the first chunk, at most `received(digest)`; what is sent again replaces what was held.
            chunks: the next bytes. What the iterator raises passes through.
            total: size of the whole blob, bytes.

        Returns:
            Bytes held now. At `total` the blob is there, verified and durable.

        Raises:
            Refused: `upload-gap`, offset lies behind what is held.
            IntegrityError: the bytes do not have this digest or size; what was held is discarded.
            EnvironmentFault: the disk cannot hold it.
        """
        ...

    def verify(self, digest: Digest) -> None:
        """Reads the blob again. Raises IntegrityError if it is missing or has changed."""
        ...

    def delete(self, digest: Digest) -> None:
        """Removes the blob and any upload of it; neither has to be there."""
        ...

    def digests(self) -> Iterator[Digest]:
        """All whole blobs, ascending."""
        ...


class LocalObjectStore:
    """An object store in a directory, which is made when something first comes in."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._uploads = directory / "uploads"

    def has(self, digest: Digest) -> bool:
        return self._place(digest).is_file()

    def size(self, digest: Digest) -> int:
        return self.path(digest).stat().st_size

    def path(self, digest: Digest) -> Path:
        if not self.has(digest):
            raise IntegrityError(f"Expected blob {digest} in {self.directory}, found none.", "send it again")
        return self._place(digest)

    def adopt(self, path: Path) -> Digest:
        digest = digest_file(path)
        if self.has(digest):
            path.unlink()
            return digest
        with disk_faults(self._place(digest)):
            with path.open("rb") as file:
                os.fsync(file.fileno())
            self._publish(path, digest)
        return digest

    def received(self, digest: Digest) -> int:
        for place in (self._place(digest), self._part(digest)):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                return place.stat().st_size
        return 0

    def append(self, digest: Digest, offset: int, chunks: Iterable[bytes], total: int) -> int:
        held = self.received(digest)
        if not 0 <= offset <= held:
            raise _gap(digest, offset, held)
        if held > total or (self.has(digest) and held != total):
            self._part(digest).unlink(missing_ok=True)
            raise _wrong(digest, f"{total:,} bytes", f"{held:,}")
        if self.has(digest):
            return total
        with disk_faults(self._uploads):
            self._uploads.mkdir(parents=True, exist_ok=True)
            require_space(self._uploads, total - held)
        with _Upload(self._part(digest)) as upload:
            for chunk in chunks:
                if not upload.put(digest, chunk, offset, total):
                    break
                offset += len(chunk)
            return self._finish(upload, digest, total)

    def _finish(self, upload: _Upload, digest: Digest, total: int) -> int:
        with disk_faults(upload.path), upload.locked() as held:
            if held is None or self.has(digest):
                return self._overtaken(upload, digest, held)
            if held < total:
                return held
            upload.sync()
            found = digest_file(upload.path)
            if found != digest:
                upload.path.unlink()
                raise _wrong(digest, "bytes of that SHA-256", found)
            self._publish(upload.path, digest)
            return total

    def _overtaken(self, upload: _Upload, digest: Digest, held: int | None) -> int:
        """Another upload of the same blob came to its end during this one."""
        if not self.has(digest):
            raise IntegrityError(f"The upload of {digest} was discarded while it ran.", "send it again from the start")
        if held is not None:
            upload.path.unlink()
        return self.size(digest)

    def verify(self, digest: Digest) -> None:
        found = digest_file(self.path(digest))
        if found != digest:
            raise IntegrityError(f"Blob {digest} in {self.directory} has changed: its SHA-256 is {found}.")

    def delete(self, digest: Digest) -> None:
        self._place(digest).unlink(missing_ok=True)
        self._part(digest).unlink(missing_ok=True)

    def digests(self) -> Iterator[Digest]:
        names = (path.name for path in self.directory.glob("[0-9a-f][0-9a-f]/*"))
        return iter(sorted(Digest(name) for name in names if _DIGEST.fullmatch(name)))

    def _publish(self, path: Path, digest: Digest) -> None:
        place = self._place(digest)
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)
        sync_directory(place.parent)
        sync_directory(self.directory)

    def _place(self, digest: Digest) -> Path:
        return self.directory / _checked(digest)[:2] / digest

    def _part(self, digest: Digest) -> Path:
        return self._uploads / f"{_checked(digest)}.part"


class _Upload:
    """The part of a blob, open for writing.

    Several uploads of one blob may run at once, for example because a site reconnected before the coordinator noticed
    that the old connection is dead. The lock is held per chunk, not per upload, so that the dead one stops nobody; and
    who holds it first looks whether the name still means this file, so that nobody writes into a published blob.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with disk_faults(path):
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

    @contextlib.contextmanager
    def locked(self) -> Iterator[int | None]:
        """Holds the file's lock; gives the bytes in it, or None if it was published or discarded meanwhile."""
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        try:
            mine, named = os.fstat(self._handle), None
            with contextlib.suppress(FileNotFoundError):
                named = self.path.stat()
            yield mine.st_size if named and os.path.samestat(mine, named) else None
        finally:
            fcntl.flock(self._handle, fcntl.LOCK_UN)

    def put(self, digest: Digest, chunk: bytes, offset: int, total: int) -> bool:
        """Writes one chunk at `offset`; False if the file was published or discarded meanwhile."""
        with disk_faults(self.path), self.locked() as held:
            if held is None:
                return False
            if offset > held:
                raise _gap(digest, offset, held)
            if offset + len(chunk) > total:
                self.path.unlink()
                raise _wrong(digest, f"{total:,} bytes", f"at least {offset + len(chunk):,}")
            rest = memoryview(chunk)
            while rest:
                written = os.pwrite(self._handle, rest, offset)
                rest, offset = rest[written:], offset + written
            return True

    def sync(self) -> None:
        os.fsync(self._handle)


def _checked(digest: Digest) -> str:
    """Digests come from the network and become file names."""
    if not _DIGEST.fullmatch(digest):
        raise IntegrityError(f"Expected a SHA-256 in lower-case hexadecimal, found {digest[:80]!r}.")
    return digest


def _gap(digest: Digest, offset: int, held: int) -> Refused:
    return Refused(
        f"The upload of {digest} must continue at byte {held:,} or before it, found {offset:,}.",
        "ask how much is held and continue there",
        kind="upload-gap",
    )


def _wrong(digest: Digest, expected: str, found: str) -> IntegrityError:
    return IntegrityError(f"Upload of {digest}: expected {expected}, found {found}.", "send it again from the start")
