"""safetensors files, written as a stream and read through a memory map.

The writer never holds more than one chunk besides what it is given, and the reader holds nothing: both work on models
larger than the machine's memory. Any safetensors library reads these files (weights_header.py).
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from crosstrain.disk import disk_faults, sync_directory
from crosstrain.domain.ids import Digest
from crosstrain.errors import IntegrityError
from crosstrain.partial_file import SYNC_BYTES, start_writeback
from crosstrain.storage.durable import write_all
from crosstrain.storage.weights_header import NUMPY_TYPES, DType, Entry, header_bytes, read_header

__all__ = ["DType", "Entry", "WeightsFile", "WeightsWriter"]

Array = npt.NDArray[Any]

_CHUNK = 1 << 18  # elements; 1 MiB of float32 between hashing and writing. A merge takes 15 % longer with a quarter


class WeightsWriter:
    """Writes `path` tensor by tensor, in the order of `entries`; `path` appears whole and durable, or not at all.

    Used as a context manager. The bytes depend on nothing but the arguments, so equal weights have equal digests. What was
    written goes to the disk beside the writing, so that the end need not wait for all of it.

    Args:
        hashed: whether `digest` is wanted; the bytes are hashed while they are in the cache.
        durable: whether the file must survive a power loss once `path` is there; not if it is only looked at and removed.

    Raises:
        ValueError: on a tensor out of order, of the wrong shape or type, or missing at the end.
        EnvironmentFault: the disk is full or not writable.
    """

    def __init__(
        self,
        path: Path,
        entries: Iterable[Entry],
        metadata: Mapping[str, str] | None = None,
        *,
        hashed: bool = False,
        durable: bool = True,
    ) -> None:
        self.path = path
        self.entries = tuple(entries)
        self._header = header_bytes(self.entries, metadata or {})
        self._part = path.with_name(path.name + ".part")
        self._rounded = np.empty(_CHUNK, NUMPY_TYPES["BF16"])
        self._handle: int | None = None
        self._sha = hashlib.sha256() if hashed else None
        self._durable = durable
        self._written = self._flushed = 0  # bytes
        self._at = 0  # index of the entry being written
        self._filled = 0  # elements of it already written

    def __enter__(self) -> Self:
        try:
            with disk_faults(self.path):
                self._handle = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
                self._write(memoryview(self._header))
        except BaseException:
            self._discard()
            raise
        return self

    def write(self, name: str, array: Array) -> None:
        """Writes a whole tensor.

        Args:
            array: of the entry's type, or float32 for a BF16 entry; of exactly the entry's shape.
        """
        entry = self._current(name)
        if self._filled or array.shape != entry.shape:
            raise ValueError(
                f"{name}: expected a whole tensor of shape {entry.shape}, found {array.shape}"
                + (f" after {self._filled} elements were appended" if self._filled else "")
            )
        self.append(name, array.reshape(-1))

    def append(self, name: str, chunk: Array) -> None:
        """Writes the next elements of a tensor in row-major order.

        Args:
            chunk: [any length] of the entry's type, or float32 for a BF16 entry; not kept.
        """
        entry = self._current(name)
        dtype = NUMPY_TYPES[entry.dtype]
        if chunk.ndim != 1 or self._filled + chunk.size > entry.size:
            raise ValueError(
                f"{name}: expected a flat chunk of at most {entry.size - self._filled} elements, found {chunk.shape}"
            )
        rounded = entry.dtype == "BF16" and chunk.dtype == np.float32
        if not rounded and chunk.dtype != dtype:
            raise ValueError(f"{name}: expected {dtype} elements, found {chunk.dtype}")
        with disk_faults(self.path):
            self._put(chunk, dtype)
        self._filled += chunk.size
        if self._filled == entry.size:
            self._at, self._filled = self._at + 1, 0

    def _current(self, name: str) -> Entry:
        if self._handle is None:
            raise ValueError(f"{self.path}: the writer is not open; use it in a with statement")
        expected = self.entries[self._at] if self._at < len(self.entries) else None
        if expected is None or expected.name != name:
            raise ValueError(f"{self.path}: expected {expected.name if expected else 'no more tensors'}, found {name}")
        return expected

    def _put(self, flat: Array, dtype: np.dtype[Any]) -> None:
        assert self._handle is not None
        for begin in range(0, flat.size, _CHUNK):
            piece = flat[begin : begin + _CHUNK]
            if piece.dtype != dtype:
                rounded = self._rounded[: piece.size]
                with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one, which is no news
                    rounded[:] = piece  # ml_dtypes rounds to nearest, ties to even
                piece = rounded
            # As bytes, because the buffer protocol has no bfloat16.
            self._write(np.ascontiguousarray(piece).view(np.uint8).data)

    def _write(self, data: memoryview) -> None:
        assert self._handle is not None
        if self._sha is not None:
            self._sha.update(data)
        write_all(self._handle, data, self._written)
        self._written += len(data)
        if self._durable and self._written - self._flushed >= SYNC_BYTES:
            start_writeback(self._handle, self._flushed, self._written)
            self._flushed = self._written

    @property
    def digest(self) -> Digest:
        """SHA-256 of the file, once it is whole."""
        assert self._sha is not None, "the writer was not told to hash"
        return Digest(self._sha.hexdigest())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._check_complete()
                self._publish()
        finally:
            self._discard()

    def _publish(self) -> None:
        assert self._handle is not None
        with disk_faults(self.path):
            if self._durable:
                os.fsync(self._handle)
            self._part.replace(self.path)
            if self._durable:
                sync_directory(self.path.parent)

    def _discard(self) -> None:
        """Closes the file and removes it, unless it was renamed."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)
        self._part.unlink(missing_ok=True)

    def _check_complete(self) -> None:
        if self._at != len(self.entries):
            missing = self.entries[self._at]
            raise ValueError(
                f"{self.path}: expected all {len(self.entries)} tensors, but {missing.name} has "
                f"{self._filled} of {missing.size} elements"
            )


class WeightsFile:
    """A memory-mapped weights file; opening it checks the header against the file's size, not the data.

    Arrays are views of the map and stay valid after `close`, as long as they are referenced. The file must not be
    truncated meanwhile (the system kills a process that touches a page behind the end): blobs are immutable.

    Args:
        private: the arrays are writable (torch.from_numpy takes them without a warning or a copy), and what is written
            stays in this process. By default they are read-only.

    Raises:
        IntegrityError: not a weights file, or a damaged or shortened one; says what was expected and what was found.
    """

    def __init__(self, path: Path, *, private: bool = False) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                header = read_header(path, file, size)
                access = mmap.ACCESS_COPY if private else mmap.ACCESS_READ
                mapped = mmap.mmap(file.fileno(), 0, access=access)
        except OSError as error:
            raise IntegrityError(
                f"Expected a weights file at {path}, but it cannot be read: {error.strerror}."
            ) from error
        self.metadata: Mapping[str, str] = header.metadata
        self.entries = tuple(entry for entry, _ in header.places.values())
        """In the order of the data."""
        self._places = header.places
        self._map = None if private else mapped
        self._data: Array | None = np.frombuffer(mapped, np.uint8)[header.data_begin :]

    def array(self, name: str) -> Array:
        """The tensor as a view, of the entry's type and shape.

        Raises:
            KeyError: no such tensor.
            ValueError: the file was closed.
        """
        entry, begin = self._places[name]
        if self._data is None:
            raise ValueError(f"{self.path} is closed")
        return self._data[begin : begin + entry.nbytes].view(NUMPY_TYPES[entry.dtype]).reshape(entry.shape)

    def release(self) -> None:
        """Takes the pages read so far out of this process's resident memory; the arrays stay valid.

        Pages of a map count as resident until the system needs them: a walk over 0.15 B parameters in five files showed
        2 GB. Called every few hundred chunks, this keeps it constant; the page cache still has them. Private maps keep
        theirs, because what was written to them would be lost.
        """
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Lets go of the map; the system unmaps it with the last array taken from it."""
        self._data = self._map = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
