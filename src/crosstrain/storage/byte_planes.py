"""Files packed without loss: bytes of equal significance lie together, each such plane of a chunk compressed by itself.

    8 bytes   CTPLANES
    u32       version
    u32       width: bytes of an element, which is the number of planes (1, 2 or 4)
    u64       bytes of the raw file
    32 bytes  their SHA-256
    u32 ...   stored bytes of every plane, chunk by chunk
    data      the planes in that order: a zstd frame, or the plane itself where a frame would not be smaller

All numbers are little-endian. A chunk is 2^20 elements of the raw file, the last one what is left; plane i of a chunk is its bytes
i, i + width, i + 2 width ... In a bfloat16 the first plane is nearly all mantissa, which is noise, and the second sign and most of
the exponent, which takes a handful of values (arXiv 2411.05239).

Whoever unpacks says how large the raw file may be, so that nothing in a packed file decides how much memory or disk is used.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np
import numpy.typing as npt
import zstandard

from crosstrain.disk import disk_faults, sync_directory
from crosstrain.domain.ids import Digest
from crosstrain.errors import IntegrityError

MAGIC = b"CTPLANES"
VERSION = 1
PLANE = 1 << 20
"""Bytes of a plane, elements of a chunk."""
LEVEL = 1
"""Of zstd: what there is to gain is in the frequencies of bytes, which the higher levels code no better, only more slowly."""
WIDTHS = (1, 2, 4)

_HEADER = struct.Struct("<8sIIQ32s")
_LENGTH = np.dtype("<u4")

Bytes = npt.NDArray[np.uint8]


def pack(source: Path, target: Path, width: int) -> None:
    """Packs a file of elements of `width` bytes; `target` appears whole and durable, or not at all.

    Raises:
        EnvironmentFault: the disk is full or not writable.
    """
    part = target.with_name(target.name + ".part")
    try:
        with disk_faults(target):
            with source.open("rb") as raw, part.open("wb") as packed:
                _pack(raw, packed, width)
                packed.flush()
                os.fsync(packed.fileno())
            part.replace(target)
            sync_directory(target.parent)
    finally:
        part.unlink(missing_ok=True)


def _pack(raw: BinaryIO, packed: BinaryIO, width: int) -> None:
    """Leaves room for header and table, which are known when all is read."""
    size = os.fstat(raw.fileno()).st_size
    packed.seek(_HEADER.size + _LENGTH.itemsize * _planes(size, width))
    compressor, sha, lengths = zstandard.ZstdCompressor(level=LEVEL), hashlib.sha256(), []
    for chunk in iter(lambda: raw.read(PLANE * width), b""):
        sha.update(chunk)
        flat = np.frombuffer(chunk, np.uint8)
        for plane in range(width):
            plain = flat[plane::width].tobytes()
            frame = compressor.compress(plain)
            stored = frame if len(frame) < len(plain) else plain
            lengths.append(len(stored))
            packed.write(stored)
    packed.seek(0)
    packed.write(_HEADER.pack(MAGIC, VERSION, width, size, sha.digest()))
    packed.write(np.array(lengths, _LENGTH).tobytes())


class PackedFile:
    """An open packed file, whose header and table are in order; its data is looked at when it is unpacked.

    Args:
        limit: bytes that the raw file may have.

    Attributes:
        size: bytes of the raw file.
        digest: SHA-256 of the raw file.

    Raises:
        IntegrityError: not a packed file, a damaged or shortened one, or one of a larger file.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise IntegrityError(
                f"Expected a packed file at {path}, but it cannot be read: {error.strerror}."
            ) from error
        try:
            self._width, self.size, self.digest = self._read_header(limit)
            self._lengths = self._read_table()
        except BaseException:
            self.close()
            raise

    def unpack(self, target: Path, *, durable: bool) -> None:
        """Writes the raw file to `target`, verified, or nothing. Holds one chunk at a time.

        Args:
            durable: whether it outlives a power cut, which takes as long as the disk needs.

        Raises:
            IntegrityError: a plane does not unpack to its length, or the whole to its digest.
            EnvironmentFault: the disk is full or not writable.
        """
        part = target.with_name(target.name + ".part")
        try:
            with disk_faults(target):
                with part.open("wb") as raw:
                    self._unpack(raw)
                    if durable:
                        raw.flush()
                        os.fsync(raw.fileno())
                part.replace(target)
                if durable:
                    sync_directory(target.parent)
        finally:
            part.unlink(missing_ok=True)

    def _unpack(self, raw: BinaryIO) -> None:
        sha, found = hashlib.sha256(), 0
        for chunk in self._chunks():
            sha.update(chunk.data)
            raw.write(chunk.data)
            found += chunk.size
        if found != self.size or sha.hexdigest() != self.digest:
            raise self._damaged(f"{self.size:,} bytes of SHA-256 {self.digest}", f"{found:,} of {sha.hexdigest()}")

    def _chunks(self) -> Iterator[Bytes]:
        self._file.seek(_HEADER.size + self._lengths.nbytes)
        decompressor = zstandard.ZstdDecompressor(max_window_size=PLANE)
        for number, stored in enumerate(self._lengths.reshape(-1, self._width)):
            chunk = np.empty(min(PLANE * self._width, self.size - number * PLANE * self._width), np.uint8)
            for plane, length in enumerate(stored):
                part = chunk[plane :: self._width]
                part[:] = np.frombuffer(self._plane(decompressor, int(length), part.size), np.uint8)
            yield chunk

    def _plane(self, decompressor: zstandard.ZstdDecompressor, length: int, expected: int) -> bytes:
        """The next plane, of `expected` bytes, from `length` stored ones."""
        stored = self._file.read(length)
        if len(stored) == length == expected:
            return stored
        try:
            # The frame's own word decides how much memory is taken, so it is heard before.
            announced = zstandard.frame_content_size(stored)
            if len(stored) != length or announced != expected:
                raise self._damaged(f"a plane of {expected:,} bytes", f"{announced:,} from {len(stored):,} stored")
            plain = decompressor.decompress(stored, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise self._damaged(f"a plane of {expected:,} bytes", str(error)) from None
        if len(plain) != expected:
            raise self._damaged(f"a plane of {expected:,} bytes", f"{len(plain):,}")
        return plain

    def _read_header(self, limit: int) -> tuple[int, int, Digest]:
        """Width, raw size and raw digest."""
        data = self._file.read(_HEADER.size)
        if len(data) < _HEADER.size or not data.startswith(MAGIC):
            raise self._damaged(f"{MAGIC.decode()} and a header of {_HEADER.size} bytes", repr(data[:16]))
        _, version, width, size, digest = _HEADER.unpack(data)
        if version != VERSION or width not in WIDTHS:
            raise self._damaged(
                f"version {VERSION} with elements of {WIDTHS} bytes", f"version {version} with elements of {width}"
            )
        if size > limit:
            raise IntegrityError(
                f"{self.path} is a packed file of {size:,} bytes, expected one of at most {limit:,}.",
                "it is of another model, or was made to fill the disk",
            )
        return width, size, Digest(digest.hex())

    def _read_table(self) -> npt.NDArray[np.uint32]:
        """Stored bytes of every plane; together they are what follows the table."""
        count = _planes(self.size, self._width)
        data = self._file.read(_LENGTH.itemsize * count)
        if len(data) < _LENGTH.itemsize * count:
            raise self._damaged(f"a table of {count:,} planes", f"{len(data):,} bytes")
        lengths = np.frombuffer(data, _LENGTH)
        expected = _HEADER.size + len(data) + int(lengths.sum(dtype=np.uint64))
        found = os.fstat(self._file.fileno()).st_size
        if expected != found or (lengths.size and int(lengths.max()) > PLANE):
            raise self._damaged(f"{expected:,} bytes in planes of at most {PLANE:,}", f"{found:,}")
        return lengths

    def _damaged(self, expected: str, found: str) -> IntegrityError:
        return IntegrityError(
            f"{self.path} is not a whole packed file: expected {expected}, found {found}.", "send it again"
        )

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _planes(size: int, width: int) -> int:
    """Planes of a raw file of `size` bytes."""
    return width * -(-size // (PLANE * width))
