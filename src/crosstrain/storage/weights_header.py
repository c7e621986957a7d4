"""The header of a safetensors file: which tensors it holds, and where.

    8 bytes   length of the header, little-endian
    header    JSON {name: {dtype, shape, data_offsets}}, padded with spaces so that the data begins at a multiple of 64
    data      the tensors, row-major, without gaps

Format: https://github.com/huggingface/safetensors, "Format".
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import ml_dtypes
import numpy as np

from crosstrain.errors import IntegrityError

DType = Literal["F32", "BF16", "I8", "U8"]

NUMPY_TYPES: Mapping[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I8": np.dtype(np.int8),
    "U8": np.dtype(np.uint8),
}
"""The last two hold the steps of a quantised delta (delta_file.py)."""

_ALIGNMENT = 64  # a cache line; also enough for every vector instruction
_LARGEST_HEADER = 8 << 20  # of 50,000 tensors; a header becomes fifteen times its size while it is parsed
_MOST_AXES = 64  # of an array in numpy
_LONGEST_SHOWN = 120


@dataclass(frozen=True)
class Entry:
    """One tensor of a file: its name, its element type in the file, its shape (elements per axis)."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * NUMPY_TYPES[self.dtype].itemsize

    def __str__(self) -> str:
        """For messages."""
        return f"{shown(self.name)} ({self.dtype} {shown(list(self.shape))})"


@dataclass(frozen=True)
class Header:
    """A parsed header.

    Attributes:
        places: entry and offset of its first byte in the data, by name, in the order of the data.
        metadata: free strings.
        data_begin: offset of the data in the file, in bytes.
    """

    places: dict[str, tuple[Entry, int]]
    metadata: dict[str, str]
    data_begin: int


def header_bytes(entries: tuple[Entry, ...], metadata: Mapping[str, str]) -> bytes:
    """Length and padded header, for tensors laid out in the given order.

    Raises:
        ValueError: a name is given twice or reserved.
    """
    table: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for entry in entries:
        if entry.name in table or entry.name == "__metadata__":
            raise ValueError(f"the tensor name {entry.name!r} is reserved or given twice")
        table[entry.name] = {
            "dtype": entry.dtype,
            "shape": list(entry.shape),
            "data_offsets": [offset, offset + entry.nbytes],
        }
        offset += entry.nbytes
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def read_header(path: Path, file: BinaryIO, size: int) -> Header:
    """Reads and checks the header of `file`, a file of `size` bytes named `path` in messages.

    Raises:
        IntegrityError: the header is damaged, or does not describe exactly the bytes that follow it.
    """
    length = _header_length(path, file.read(8), size)
    table = _parse_json(path, file.read(length))
    metadata = table.pop("__metadata__", {})
    return Header(_check_layout(path, table, size - 8 - length), metadata, 8 + length)


def _header_length(path: Path, prefix: bytes, size: int) -> int:
    """Length of the header in bytes."""
    length, most = int.from_bytes(prefix, "little"), max(0, min(size - 8, _LARGEST_HEADER))
    if len(prefix) < 8 or not 2 <= length <= most:
        raise _damaged(path, f"a header of 2 to {most:,} bytes in a file of {size:,} bytes", f"{length:,}")
    return length


def _parse_json(path: Path, text: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) != len(pairs):
            raise ValueError("a name given twice")
        return table

    try:
        table = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "a header of JSON", str(error)) from None
    if not isinstance(table, dict) or not isinstance(table.get("__metadata__", {}), dict):
        raise _damaged(path, "a JSON object of tensors", shown(text.decode("utf-8", "replace")))
    return table


def _check_layout(path: Path, table: dict[str, Any], data_size: int) -> dict[str, tuple[Entry, int]]:
    """Entries with their first byte in the data, by name, in the order of the data."""
    found = sorted((_parse_entry(path, name, fields) for name, fields in table.items()), key=lambda item: item[1:])
    expected_begin = 0
    for entry, begin, end in found:
        if begin != expected_begin or end != begin + entry.nbytes:
            wanted = f"{entry} at bytes {expected_begin} to {expected_begin + entry.nbytes}"
            raise _damaged(path, wanted, f"{begin} to {end}")
        expected_begin = end
    if expected_begin != data_size:
        raise _damaged(path, f"{expected_begin:,} bytes of data", f"{data_size:,}")
    return {entry.name: (entry, begin) for entry, begin, _ in found}


def _parse_entry(path: Path, name: str, fields: Any) -> tuple[Entry, int, int]:
    match fields:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(begin), int(end)]}:
            if dtype not in NUMPY_TYPES:
                raise _damaged(path, f"{shown(name)} to be one of {', '.join(NUMPY_TYPES)}", shown(dtype))
            if len(shape) <= _MOST_AXES and all(map(_is_count, (*shape, begin, end))):
                return Entry(name, cast(DType, dtype), tuple(shape)), begin, end
    raise _damaged(path, f"{shown(name)} to have dtype, shape and two data_offsets", shown(fields))


def _is_count(value: Any) -> bool:
    """Whether it can count elements or bytes; what is larger than a file can be is not worth an arithmetic of its own."""
    return type(value) is int and 0 <= value < 1 << 63


def shown(found: object) -> str:
    """What a file says, as a message may repeat it: short, and of characters that every terminal and every encoding takes."""
    text = str(found)
    cut = text[:_LONGEST_SHOWN]
    plain = cut if cut.isprintable() else ascii(cut)[1:-1]
    return plain if cut == text else f"{plain}..."


def _damaged(path: Path, expected: str, found: str) -> IntegrityError:
    return IntegrityError(f"{path} is not a whole weights file: expected {expected}, found {found}.", "fetch it again")
