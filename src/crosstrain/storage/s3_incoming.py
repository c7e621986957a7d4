"""Uploads that sites send straight into a bucket, in parts, under a key that does not count.

    incoming/ab12...     what came, as a multipart upload and then as an object that nobody has verified yet

How far an upload is the service alone knows, and is asked: nothing of it is kept here, so that it goes on whichever end was
restarted.
"""

from __future__ import annotations

import re
from collections import Counter

from crosstrain.domain.ids import Digest
from crosstrain.domain.parts import PartRule, PartsLeft, SignedPart
from crosstrain.storage.digest_locks import DigestLocks
from crosstrain.storage.object_store import checked
from crosstrain.storage.s3_bucket import Head, MultipartUpload, S3Bucket, StoredPart
from crosstrain.storage.upload import missing, wrong

PLACE = "incoming/"
_OBJECT = re.compile(PLACE + "([0-9a-f]{64})")
_UPLOAD = re.compile(f"(?:{PLACE}|[0-9a-f]{{2}}/)([0-9a-f]{{64}})")
"""The coordinator's own puts and copies of large objects are uploads too, and stay when it dies."""
SIGNED_AT_ONCE = 256
"""Addresses in one answer: they have up to 2 kB each, and an answer is small (`wire.http_line.LARGEST_ANSWER`)."""


class Incoming:
    """What is on its way into a bucket past the coordinator; for several threads.

    Raises:
        EnvironmentFault: from any method, the service refuses or does not answer.
    """

    def __init__(self, bucket: S3Bucket, rule: PartRule) -> None:
        self._bucket, self._rule = bucket, rule
        self._beginning = DigestLocks()

    def progress(self, digest: Digest, total: int) -> int:
        """Bytes that are there, of an upload that need not have begun."""
        parts, found = self._state(digest, total)[1:]
        return total if found else _length(self._fitting(total, parts))

    def left(self, digest: Digest, total: int) -> PartsLeft:
        """How far an upload is; begins it if it is not there.

        Raises:
            IntegrityError: an object of another size lay there; it is gone now.
        """
        with self._beginning(digest):  # two that begin at once would each send all of it
            upload, parts, found = self._state(digest, total)
            if found is not None:
                return PartsLeft(total)
            upload = upload or self._bucket.begin(key_of(digest))
        left = list(self._rule.missing(total, _sizes(parts)).items())
        signed = tuple(
            SignedPart(number, start, stop - start, self._bucket.signed_part(upload, number))
            for number, (start, stop) in left[:SIGNED_AT_ONCE]
        )
        return PartsLeft(total - sum(stop - start for _, (start, stop) in left), signed)

    def assemble(self, digest: Digest, total: int) -> Head:
        """Makes one object of the parts, unless it is there already.

        Raises:
            Refused: `parts-missing`.
            IntegrityError: it has another size; it is gone now.
        """
        upload, parts, found = self._state(digest, total)
        if found is None and upload is not None and not self._rule.missing(total, _sizes(parts)):
            self._bucket.complete(upload, self._fitting(total, parts))
            found = self._found(digest, total)
        if found is None:
            raise missing(digest, _length(self._fitting(total, parts)), total)
        return found

    def discard(self, digest: Digest) -> None:
        """Removes what is there, except for the blob itself; nothing has to be."""
        self._bucket.delete(key_of(digest))
        for key in (key_of(digest), counted_key(digest)):
            for upload in self._bucket.uploads(key):
                self._bucket.abort(upload)

    def stored(self) -> dict[Digest, int]:
        """Bytes of everything that is on its way."""
        sizes: Counter[Digest] = Counter()
        for key, size in self._bucket.listed(PLACE):
            if match := _OBJECT.fullmatch(key):
                sizes[Digest(match[1])] += size
        for upload in self._bucket.uploads(""):
            if match := _UPLOAD.fullmatch(upload.key):
                sizes[Digest(match[1])] += _length(self._bucket.parts(upload))
        return dict(sizes)

    def _state(self, digest: Digest, total: int) -> tuple[MultipartUpload | None, dict[int, StoredPart], Head | None]:
        """The upload and its parts, or the object that became of it. In this order: whoever completes it meanwhile is seen."""
        upload = next(iter(self._bucket.uploads(key_of(digest))), None)
        parts = self._bucket.parts(upload) if upload else {}
        return upload, parts, self._found(digest, total)

    def _found(self, digest: Digest, total: int) -> Head | None:
        found = self._bucket.head(key_of(digest))
        if found is not None and found.size != total:
            self.discard(digest)
            raise wrong(digest, f"{total:,} bytes", f"{found.size:,}")
        return found

    def _fitting(self, total: int, parts: dict[int, StoredPart]) -> dict[int, StoredPart]:
        cut = self._rule.cut(total)
        return {
            number: part
            for number, part in parts.items()
            if number in cut and part.size == cut[number][1] - cut[number][0]
        }


def key_of(digest: Digest) -> str:
    """Where a blob comes in."""
    return f"{PLACE}{checked(digest)}"


def counted_key(digest: Digest) -> str:
    """Where it counts."""
    return f"{checked(digest)[:2]}/{digest}"


def _sizes(parts: dict[int, StoredPart]) -> dict[int, int]:
    return {number: part.size for number, part in parts.items()}


def _length(parts: dict[int, StoredPart]) -> int:
    return sum(part.size for part in parts.values())
