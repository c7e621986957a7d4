"""An object store in an S3 bucket, with a directory of bounded size before it.

Uploads come in through the directory, part by part, and are verified there; or past the coordinator (s3_incoming.py), and
are read into the directory, verified there, and copied within the bucket. Either way a blob counts when it is under its own
key, and nothing is under it before it was verified. What the coordinator reads (bases, deltas, weights to merge) is fetched into the directory, and verified again, when it is not there.
The directory may be lost at any time: then what was on its way is sent again.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from crosstrain.domain.byte_ranges import ByteRanges, Span
from crosstrain.domain.ids import Digest
from crosstrain.domain.parts import PartRule, PartsLeft
from crosstrain.domain.retention import Stored
from crosstrain.domain.room import Room
from crosstrain.errors import IntegrityError
from crosstrain.storage.bounded_directory import BoundedDirectory
from crosstrain.storage.digest_locks import DigestLocks
from crosstrain.storage.object_store import LOST, LocalObjectStore, Part, digest_file
from crosstrain.storage.s3_bucket import S3Bucket
from crosstrain.storage.s3_incoming import Incoming, counted_key, key_of
from crosstrain.storage.s3_sizes import Sizes
from crosstrain.storage.upload import Unneeded, wrong

log = logging.getLogger(__name__)

_KEY = re.compile(r"[0-9a-f]{2}/([0-9a-f]{64})")
READERS = 4
"""Connections by which a blob is read into the directory: a round waits for it."""
READ_SPAN = 16 << 20
"""Bytes that one of them reads at a time."""


class S3ObjectStore:
    """An `ObjectStore` of a bucket.

    Args:
        directory: for uploads on their way and for what was read last.
        limit: bytes that finished blobs may take there.
        rule: how uploads past the coordinator are cut.
    """

    def __init__(self, bucket: S3Bucket, directory: Path, limit: int, rule: PartRule | None = None) -> None:
        self.bucket, self._rule = bucket, rule or PartRule()
        self._incoming = Incoming(bucket, self._rule)
        self.directory = directory
        self._local, self._arriving = LocalObjectStore(directory), LocalObjectStore(directory / "arriving")
        self._kept = BoundedDirectory(self._local, limit, self.has)
        self._sizes = Sizes(self._ask)
        self._moving = DigestLocks()

    def has(self, digest: Digest) -> bool:
        return self._sizes.size(digest) is not None

    def knows(self, digest: Digest) -> bool:
        return self._sizes.known(digest) is not None

    def size(self, digest: Digest) -> int:
        size = self._sizes.size(digest)
        if size is None:
            raise IntegrityError(f"Expected blob {digest} in {self.bucket}, found none.", LOST)
        return size

    def path(self, digest: Digest) -> Path:
        if not self.has(digest):
            self._put_back(digest)
        if (here := self.ready(digest)) is not None:
            return here
        with self._moving(digest):
            self._read(digest)
        self._kept.use(digest)
        return self._local.path(digest)

    def ready(self, digest: Digest) -> Path | None:
        size = self._sizes.size(digest)
        if size is None or not self._is_here(digest, size):
            return None
        self._kept.use(digest)
        return self._local.path(digest)

    def address(self, digest: Digest) -> str | None:
        return self.bucket.signed(counted_key(digest)) if self.has(digest) else None

    def adopt(self, path: Path, digest: Digest | None = None) -> Digest:
        digest = self._local.adopt(path, digest)
        self._put(digest)
        return digest

    def held(self, digest: Digest) -> ByteRanges:
        size = self._sizes.size(digest)
        return self._local.held(digest) if size is None else ByteRanges().add(0, size)

    def open_part(self, digest: Digest, offset: int, total: int) -> Part:
        if self._whole(digest, total):
            return Unneeded(total)
        return self._local.open_part(digest, offset, total)

    def receive(self, digest: Digest, offset: int, chunks: Iterable[bytes], total: int) -> int:
        with self.open_part(digest, offset, total) as part:
            for chunk in chunks:
                if not part.write(chunk):
                    break
            held = part.finish()
        if held == total and not self.has(digest):
            self._put(digest)
        return held

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
        with self._moving(digest):
            if self._whole(digest, total):
                return
            came_directly = self._bring(digest, total)
        if came_directly:
            log.info("blob %s of %d bytes came straight into the bucket", digest[:12], total)
            self._kept.use(digest)
        else:
            self.receive(digest, total, (), total)

    def verify(self, digest: Digest) -> None:
        self.size(digest)
        sha = hashlib.sha256()
        for chunk in self.bucket.read(counted_key(digest)):
            sha.update(chunk)
        if (found := sha.hexdigest()) != digest:
            raise IntegrityError(f"Blob {digest} in {self.bucket} has changed: its SHA-256 is {found}.", LOST)

    def delete(self, digest: Digest) -> None:
        self._local.delete(digest)  # first: alone, it would be put back
        self._kept.forget(digest)
        try:
            self.bucket.delete(counted_key(digest))
        finally:
            self._sizes.forget(digest)  # also if nobody knows what became of the request

    def discard(self, digest: Digest) -> None:
        self._incoming.discard(digest)
        self._arriving.delete(digest)
        if self.has(digest):
            self._local.discard(digest)
        else:
            self._local.delete(digest)

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
        known = self._sizes.present()  # before the list, in which all of them are then
        for digest in known - set(self.digests()):
            log.error("blob %s is no longer in the bucket %s: somebody removed it", digest[:12], self.bucket)
            self._sizes.forget(digest)
            self._put_back(digest)

    def room(self) -> Room:
        """Of the directory: the bucket has no end."""
        return self._local.room()

    def _listed(self) -> Iterator[Stored]:
        for key, size in self.bucket.listed():
            if match := _KEY.fullmatch(key):
                yield Stored(Digest(match[1]), size, whole=True)

    def close(self) -> None:
        self.bucket.close()

    def _ask(self, digest: Digest) -> int | None:
        """Bytes in the bucket. Asked once: blobs do not change, and one process at a time puts and deletes them. What a
        superseded one still puts there is put once more."""
        head = self.bucket.head(counted_key(digest))
        return None if head is None else head.size

    def _put(self, digest: Digest) -> None:
        """Brings a verified blob into the bucket; from then on it counts."""
        with self._moving(digest):
            if self._local.has(digest) and not self.has(digest):
                path = self._local.path(digest)
                size = path.stat().st_size

                def put() -> int:
                    self.bucket.put(counted_key(digest), path)
                    return size

                self._sizes.learn(digest, put)
                log.info("blob %s of %d bytes was put into the bucket", digest[:12], size)
        self._kept.use(digest)

    def _put_back(self, digest: Digest) -> None:
        """What the bucket lost the directory may still have."""
        if not self._local.has(digest):
            return
        if digest_file(self._local.path(digest)) != digest:
            self._local.delete(digest)  # cut or damaged where it lay
            return
        self._put(digest)

    def _whole(self, digest: Digest, total: int) -> bool:
        size = self._sizes.size(digest)
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

        def copy() -> int:
            self.bucket.copy(key_of(digest), counted_key(digest), head.tag)
            return total

        self._sizes.learn(digest, copy)
        self._incoming.discard(digest)
        return True

    def _is_here(self, digest: Digest, size: int) -> bool:
        """Whether the directory has the blob, and not what a crash left of it."""
        with contextlib.suppress(IntegrityError, FileNotFoundError):  # it may go at any time, to make room
            return self._local.size(digest) == size
        return False

    def _read(self, digest: Digest) -> None:
        """Reads a blob into the directory. If the bytes are wrong, it may be those that an interrupted attempt had left; if all of
        them were read anew, then the blob counts as lost, so that it may come again."""
        try:
            self._fetch(self._local, digest, counted_key(digest), self.size(digest))
        except IntegrityError:
            self._sizes.forget(digest)
            size = self.size(digest)
            try:
                self._fetch(self._local, digest, counted_key(digest), size)
            except IntegrityError as error:
                self._sizes.learn(digest, lambda: None)
                raise IntegrityError(f"Blob {digest} in {self.bucket} has changed: {error.message}", LOST) from error

    def _fetch(self, into: LocalObjectStore, digest: Digest, key: str, size: int) -> None:
        """Reads an object into a directory, verified; goes on with what an interrupted attempt left there."""
        if into.has(digest):
            if into.size(digest) == size:
                return
            into.delete(digest)  # cut or emptied where it lay

        def read(span: Span) -> None:
            into.receive(digest, span[0], self.bucket.read(key, span), size)

        missing = into.held(digest).missing(0, size)
        spans = [(at, min(stop, at + READ_SPAN)) for start, stop in missing for at in range(start, stop, READ_SPAN)]
        with ThreadPoolExecutor(READERS, "read") as readers:
            list(readers.map(read, spans[:-1]))
        for span in spans[-1:]:
            read(span)  # alone: whoever brings the last byte verifies, and says what was wrong
        if (held := into.receive(digest, size, (), size)) < size:
            raise wrong(digest, f"{size:,} bytes", f"{held:,}")
