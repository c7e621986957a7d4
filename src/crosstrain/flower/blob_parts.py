"""Blobs that come and go in parts: read from a file, and put together again, whole and right or not at all."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from crosstrain.domain.ids import Digest
from crosstrain.flower.papers import Part
from crosstrain.wire.mailbox import open_own


def bytes_there(place: Path, digest: Digest) -> int:
    """How much of a blob that is being put together in `place` is there; all of it if it is whole."""
    for path in (place / digest, _unfinished(place, digest)):
        if path.exists():
            return path.stat().st_size
    return 0


def read_part(place: Path, digest: Digest, offset: int, length: int) -> tuple[Part, bytes]:
    """At most `length` bytes of a whole blob.

    Raises:
        FileNotFoundError: it is not there.
        OSError: it cannot be read, or is no plain file of this user.
    """
    with os.fdopen(open_own(place / digest), "rb") as file:
        total = os.fstat(file.fileno()).st_size
        file.seek(min(offset, total))
        data = file.read(length)
    return Part(digest=digest, offset=min(offset, total), length=len(data), total=total), data


def take_part(place: Path, part: Part, data: memoryview) -> bool:
    """Writes a part; returns whether the blob is whole now. One that does not fit what is there is left out, and bytes that
    turn out to be another blob are thrown away: it is then asked for again from where it stands."""
    digest = Digest(part.digest)
    if (place / digest).exists():
        return True
    path = _unfinished(place, digest)
    if part.offset > bytes_there(place, digest):
        return False
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "r+b") as file:
        file.truncate(part.offset)
        file.seek(part.offset)
        file.write(data)
        if file.tell() < part.total:
            return False
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        right = hashlib.file_digest(file, "sha256").hexdigest() == digest
    if right:
        path.replace(place / digest)
    else:
        path.unlink()
    return right


def _unfinished(place: Path, digest: Digest) -> Path:
    return place / f".{digest}.flower"
