"""An object store in an S3 bucket, with a directory of bounded size before it.

Uploads come in through the directory, part by part, and are verified there; a blob counts when it is in the bucket. What the
coordinator reads (bases, deltas, weights to merge) is fetched into the directory, and verified again, when it is not there.
The directory may be lost at any time: then what was on its way is sent again.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from crosstrain.domain.byte_ranges import ByteRanges
from crosstrain.domain.ids import Digest
from crosstrain.domain.retention import Stored
from crosstrain.domain.room import Room
from crosstrain.errors import IntegrityError
from crosstrain.storage.object_store import LocalObjectStore, Part, checked
from crosstrain.storage.s3_bucket import S3Bucket
from crosstrain.storage.upload import Unneeded, wrong

_KEY = re.compile(r"[0-9a-f]{2}/([0-9a-f]{64})")
KEPT = 16
"""Blobs used last that stay in the directory whatever its limit: somebody may be about to open one."""


class S3ObjectStore:
    """An `ObjectStore` of a bucket.

    Args:
        directory: for uploads on their way and for what was read last.
        limit: bytes that finished blobs may take there.
    """

    def __init__(self, bucket: S3Bucket, directory: Path, limit: int) -> None:
        self._bucket, self._limit = bucket, limit
        self.directory = directory
        self._local = LocalObjectStore(directory)
        self._sizes: dict[Digest, int | None] = {}
        self._used: OrderedDict[Digest, None] = OrderedDict()
        self._lock = threading.RLock()
        self._moving: defaultdict[Digest, threading.Lock] = defaultdict(threading.Lock)

    def has(self, digest: Digest) -> bool:
        return self._size(digest) is not None

    def size(self, digest: Digest) -> int:
        size = self._size(digest)
        if size is None:
            raise IntegrityError(f"Expected blob {digest} in {self._bucket}, found none.", "send it again")
        return size

    def path(self, digest: Digest) -> Path:
        size = self.size(digest)
        with self._moving[digest]:
            if not self._local.has(digest):
                self._fetch(digest, size)
        self._use(digest)
        return self._local.path(digest)

    def address(self, digest: Digest) -> str | None:
        return self._bucket.signed(_key(digest)) if self.has(digest) else None

    def adopt(self, path: Path) -> Digest:
        digest = self._local.adopt(path)
        self._put(digest)
        return digest

    def held(self, digest: Digest) -> ByteRanges:
        size = self._size(digest)
        return self._local.held(digest) if size is None else ByteRanges().add(0, size)

    def open_part(self, digest: Digest, offset: int, total: int) -> Part:
        size = self._size(digest)
        if size is None:
            return _Forwarded(self._local.open_part(digest, offset, total), lambda: self._put(digest))
        if size != total:
            raise wrong(digest, f"{total:,} bytes", f"{size:,}")
        return Unneeded(total)

    def receive(self, digest: Digest, offset: int, chunks: Iterable[bytes], total: int) -> int:
        with self.open_part(digest, offset, total) as part:
            for chunk in chunks:
                if not part.write(chunk):
                    break
            return part.finish()

    def verify(self, digest: Digest) -> None:
        self.size(digest)
        sha = hashlib.sha256()
        for chunk in self._bucket.read(_key(digest)):
            sha.update(chunk)
        if (found := sha.hexdigest()) != digest:
            raise IntegrityError(f"Blob {digest} in {self._bucket} has changed: its SHA-256 is {found}.")

    def delete(self, digest: Digest) -> None:
        self._bucket.delete(_key(digest))
        self._local.delete(digest)
        with self._lock:
            self._sizes.pop(digest, None)
            self._used.pop(digest, None)

    def digests(self) -> Iterator[Digest]:
        return (blob.digest for blob in self._listed())

    def stored(self) -> Iterator[Stored]:
        """What is whole in the directory alone is still on its way."""
        there = set()
        for blob in self._listed():
            there.add(blob.digest)
            yield blob
        yield from (blob._replace(whole=False) for blob in self._local.stored() if blob.digest not in there)

    def room(self) -> Room:
        """Of the directory: the bucket has no end."""
        return self._local.room()

    def _listed(self) -> Iterator[Stored]:
        for key, size in self._bucket.listed():
            if match := _KEY.fullmatch(key):
                yield Stored(Digest(match[1]), size, whole=True)

    def _size(self, digest: Digest) -> int | None:
        """Bytes in the bucket. Asked once: blobs do not change, and one process at a time puts and deletes them. What a
        superseded one still puts there is put once more."""
        with self._lock:
            if digest in self._sizes:
                return self._sizes[digest]
        found = self._bucket.size(_key(digest))
        with self._lock:
            return self._sizes.setdefault(digest, found)

    def _put(self, digest: Digest) -> None:
        """Brings a verified blob into the bucket; from then on it counts."""
        with self._moving[digest]:
            if self._local.has(digest) and self._size(digest) is None:
                path = self._local.path(digest)
                self._bucket.put(_key(digest), path)
                with self._lock:
                    self._sizes[digest] = path.stat().st_size
        self._use(digest)

    def _fetch(self, digest: Digest, size: int) -> None:
        self._local.receive(digest, 0, self._bucket.read(_key(digest)), size)

    def _use(self, digest: Digest) -> None:
        """Notes a use, and makes room in the directory: what was not used for the longest time goes first."""
        with self._lock:
            self._used[digest] = None
            self._used.move_to_end(digest)
            recent = set(list(self._used)[-KEPT:])
            there = {blob.digest: blob.size for blob in self._local.stored() if blob.whole}
            taken = sum(there.values())
            order = [*(there.keys() - self._used.keys()), *self._used]
            for old in order:
                if taken <= self._limit:
                    break
                if old in there and old not in recent and self._size(old) is not None:
                    self._local.delete(old)
                    taken -= there[old]
                    self._used.pop(old, None)


class _Forwarded:
    """A part of an upload that goes into the bucket when it is whole."""

    def __init__(self, part: Part, whole: Callable[[], None]) -> None:
        self._part, self._whole = part, whole

    def __enter__(self) -> Self:
        self._part.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._part.__exit__(kind, error, trace)

    def write(self, data: bytes) -> bool:
        return self._part.write(data)

    def finish(self) -> int:
        held = self._part.finish()
        self._whole()
        return held


def _key(digest: Digest) -> str:
    return f"{checked(digest)[:2]}/{digest}"
