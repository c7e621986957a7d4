"""An object store in an S3 bucket, with a directory of bounded size before it.

Uploads come in through the directory, part by part, and are verified there; or past the coordinator (s3_incoming.py), and
are read into the directory, verified there, and copied within the bucket. Either way a blob counts when it is under its own
key, and nothing is under it before it was verified. What the coordinator reads (bases, deltas, weights to merge) is fetched into the directory, and verified again, when it is not there.
The directory may be lost at any time: then what was on its way is sent again.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from crosstrain.domain.byte_ranges import ByteRanges, Span
from crosstrain.domain.ids import Digest
from crosstrain.domain.parts import PartRule, PartsLeft
from crosstrain.domain.retention import Stored
from crosstrain.domain.room import Room
from crosstrain.errors import IntegrityError
from crosstrain.storage.object_store import LocalObjectStore, Part
from crosstrain.storage.s3_bucket import S3Bucket
from crosstrain.storage.s3_incoming import Incoming, counted_key, key_of
from crosstrain.storage.upload import Unneeded, wrong

log = logging.getLogger(__name__)

_KEY = re.compile(r"[0-9a-f]{2}/([0-9a-f]{64})")
READERS = 4
"""Connections by which a blob is read into the directory: a round waits for it."""
READ_SPAN = 16 << 20
"""Bytes that one of them reads at a time."""
KEPT = 16
"""Blobs used last that stay in the directory whatever its limit: somebody may be about to open one."""


class S3ObjectStore:
    """An `ObjectStore` of a bucket.

    Args:
        directory: for uploads on their way and for what was read last.
        limit: bytes that finished blobs may take there.
        rule: how uploads past the coordinator are cut.
    """

    def __init__(self, bucket: S3Bucket, directory: Path, limit: int, rule: PartRule | None = None) -> None:
        self._bucket, self._limit, self._rule = bucket, limit, rule or PartRule()
        self._incoming = Incoming(bucket, self._rule)
        self.directory = directory
        self._local, self._arriving = LocalObjectStore(directory), LocalObjectStore(directory / "arriving")
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
            self._fetch(self._local, digest, counted_key(digest), size)
        self._use(digest)
        return self._local.path(digest)

    def address(self, digest: Digest) -> str | None:
        return self._bucket.signed(counted_key(digest)) if self.has(digest) else None

    def adopt(self, path: Path, digest: Digest | None = None) -> Digest:
        digest = self._local.adopt(path, digest)
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

    @property
    def direct_from(self) -> int | None:
        return self._rule.least

    def parts_left(self, digest: Digest, total: int) -> PartsLeft | None:
        if self._whole(digest, total):
            return PartsLeft(total)
        local = self._local.held(digest).length
        if local and local > self._incoming.progress(digest, total):
            return None
        left = self._incoming.left(digest, total)
        # Again: one that was just completed has left the place where it came in.
        return PartsLeft(total) if self._whole(digest, total) else left

    def complete(self, digest: Digest, total: int) -> None:
        with self._moving[digest]:
            if self._whole(digest, total):
                return
            came_directly = self._bring(digest, total)
        if came_directly:
            log.info("blob %s of %d bytes came straight into the bucket", digest[:12], total)
            self._use(digest)
        else:
            self.receive(digest, total, (), total)

    def verify(self, digest: Digest) -> None:
        self.size(digest)
        sha = hashlib.sha256()
        for chunk in self._bucket.read(counted_key(digest)):
            sha.update(chunk)
        if (found := sha.hexdigest()) != digest:
            raise IntegrityError(f"Blob {digest} in {self._bucket} has changed: its SHA-256 is {found}.")

    def delete(self, digest: Digest) -> None:
        if not self.has(digest):
            self._incoming.discard(digest)
            self._arriving.delete(digest)
        self._bucket.delete(counted_key(digest))
        self._local.delete(digest)
        with self._lock:
            self._sizes.pop(digest, None)
            self._used.pop(digest, None)

    def digests(self) -> Iterator[Digest]:
        return (blob.digest for blob in self._listed())

    def stored(self) -> Iterator[Stored]:
        """What is whole in the directory alone, or lies where it came in, is still on its way."""
        coming = Counter(self._incoming.stored())
        coming.update({blob.digest: blob.size for blob in self._local.stored()})
        for blob in self._listed():
            coming.pop(blob.digest, None)
            yield blob
        yield from (Stored(digest, size, whole=False) for digest, size in coming.items())

    def sweep(self) -> None:
        for digest in self._incoming.stored():
            if self.has(digest):
                self._incoming.discard(digest)

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
        head = self._bucket.head(counted_key(digest))
        with self._lock:
            return self._sizes.setdefault(digest, None if head is None else head.size)

    def _put(self, digest: Digest) -> None:
        """Brings a verified blob into the bucket; from then on it counts."""
        with self._moving[digest]:
            if self._local.has(digest) and self._size(digest) is None:
                path = self._local.path(digest)
                self._bucket.put(counted_key(digest), path)
                with self._lock:
                    self._sizes[digest] = path.stat().st_size
                log.info("blob %s of %d bytes was put into the bucket", digest[:12], path.stat().st_size)
        self._use(digest)

    def _whole(self, digest: Digest, total: int) -> bool:
        size = self._size(digest)
        if size is not None and size != total:
            raise wrong(digest, f"{total:,} bytes", f"{size:,}")
        return size is not None

    def _bring(self, digest: Digest, total: int) -> bool:
        """Takes a blob from where it came in to where it counts; False if all of it came through the coordinator instead."""
        if self._local.held(digest).length == total:
            return False
        head = self._incoming.assemble(digest, total)
        # Read anew and apart: what is copied is the object, and bytes that came another way would tell nothing about it.
        self._arriving.delete(digest)
        try:
            self._fetch(self._arriving, digest, key_of(digest), total)
        except IntegrityError:
            self._incoming.discard(digest)
            raise
        self._local.take(digest, self._arriving.path(digest))
        self._bucket.copy(key_of(digest), counted_key(digest), head.tag)
        with self._lock:
            self._sizes[digest] = total
        self._incoming.discard(digest)
        return True

    def _fetch(self, into: LocalObjectStore, digest: Digest, key: str, size: int) -> None:
        """Reads an object into a directory, verified; goes on with what an interrupted attempt left there."""
        if into.has(digest):
            if into.size(digest) == size:
                return
            into.delete(digest)  # cut or emptied where it lay

        def read(span: Span) -> None:
            into.receive(digest, span[0], self._bucket.read(key, span), size)

        missing = into.held(digest).missing(0, size)
        spans = [(at, min(stop, at + READ_SPAN)) for start, stop in missing for at in range(start, stop, READ_SPAN)]
        with ThreadPoolExecutor(READERS, "read") as readers:
            list(readers.map(read, spans[:-1]))
        for span in spans[-1:]:
            read(span)  # alone: whoever brings the last byte verifies, and says what was wrong
        if (held := into.receive(digest, size, (), size)) < size:
            raise wrong(digest, f"{size:,} bytes", f"{held:,}")

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

    def write(self, data: bytes | memoryview) -> bool:
        return self._part.write(data)

    def finish(self) -> int:
        held = self._part.finish()
        self._whole()
        return held
