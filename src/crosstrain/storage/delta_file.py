"""Files of deltas, in each codec of `wire.delta`; all of them are safetensors.

    bf16, fp32    a tensor NAME of the model's shape
    int8          NAME.q I8 [blocks, 256] and NAME.scale BF16 [blocks]
    int4          NAME.q U8 [blocks, 128], two steps a byte, and NAME.scale BF16 [blocks]

Arithmetic: outer/encoding.py. Quantised files name their codec and its version in the header's metadata; what is not as it should
be to the last name is refused, so nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import numpy as np

from crosstrain.domain.ids import Digest
from crosstrain.errors import IntegrityError
from crosstrain.outer.encoding import (
    Array,
    Delta,
    Float32,
    Quantized,
    block_count,
    element_count,
    part_of,
    quantize,
    step_bytes,
)
from crosstrain.storage.weights_file import WeightsFile, WeightsWriter
from crosstrain.storage.weights_header import Entry, header_bytes, shown

Codec = Literal["bf16", "fp32", "int8", "int4"]

VERSION = "1"
"""Of the quantised codecs; another arithmetic gets another number."""

ELEMENT_BYTES: Mapping[Codec, int] = {"bf16": 2, "fp32": 4, "int8": 1, "int4": 1}
"""Of what most of a file consists of, for `byte_planes.pack`."""

_PIECE = 1 << 22  # elements


def entries_of(model: Iterable[Entry], codec: Codec) -> tuple[Entry, ...]:
    """The entries of a delta's file, in order, for a model with the tensors of `model`."""
    if codec == "bf16" or codec == "fp32":
        return tuple(Entry(entry.name, "BF16" if codec == "bf16" else "F32", entry.shape) for entry in model)
    found = []
    for entry in model:
        blocks = block_count(entry.size)
        found.append(Entry(f"{entry.name}.q", "I8" if codec == "int8" else "U8", (blocks, step_bytes(codec))))
        found.append(Entry(f"{entry.name}.scale", "BF16", (blocks,)))
    return tuple(found)


def file_bytes(model: Iterable[Entry], codec: Codec) -> int:
    """Size of a delta's file."""
    entries = entries_of(model, codec)
    return len(header_bytes(entries, _metadata(codec))) + sum(entry.nbytes for entry in entries)


class DeltaWriter:
    """Writes a delta tensor by tensor, as `WeightsWriter` does and with its errors.

    Args:
        model: the model's tensors, in the order of the file; their types do not matter.
        hashed: as of `WeightsWriter`.
    """

    def __init__(self, path: Path, model: Iterable[Entry], codec: Codec, *, hashed: bool = False) -> None:
        self._codec: Codec = codec
        tensors = tuple(model)
        self._sizes = {entry.name: entry.size for entry in tensors}
        self._file = WeightsWriter(path, entries_of(tensors, codec), _metadata(codec), hashed=hashed)
        self._scales: list[Array] = []
        self._filled = 0  # elements of the tensor being written

    @property
    def digest(self) -> Digest:
        """As of `WeightsWriter`."""
        return self._file.digest

    def append(self, name: str, values: Float32) -> Delta:
        """Writes the next elements of a tensor.

        Args:
            values: [any length]; of whole blocks if the codec has blocks, unless they are the tensor's last.

        Returns:
            What was written for them, as it will be read; for bf16 and fp32 the values themselves.
        """
        if self._codec == "bf16" or self._codec == "fp32":
            self._file.append(name, values)
            return values
        encoded = quantize(values, self._codec)
        self._file.append(f"{name}.q", encoded.steps.reshape(-1))
        self._scales.append(encoded.scales)
        self._filled += values.size
        if self._filled == self._sizes[name]:
            self._file.append(f"{name}.scale", np.concatenate(self._scales))
            self._scales, self._filled = [], 0
        return encoded

    def __enter__(self) -> Self:
        self._file.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.__exit__(kind, error, trace)


class DeltaFile:
    """A memory-mapped delta of a given codec.

    Raises:
        IntegrityError: damaged, or of another codec or version.
    """

    def __init__(self, path: Path, codec: Codec) -> None:
        self._file = WeightsFile(path)
        self._codec: Codec = codec
        self.entries = self._file.entries
        found = self._file.metadata.get("codec"), self._file.metadata.get("codec_version")
        expected = (codec, VERSION) if codec in ("int8", "int4") else (None, None)
        if found != expected:
            self.close()
            raise IntegrityError(
                f"{path}: expected a delta in {_named(codec, expected[1])}, found one in {_named(*found)}.",
                "the run's codec is `wire.delta` of RUN.toml",
            )

    def difference(self, model: Iterable[Entry]) -> str:
        """What first differs from a delta of this model; empty if nothing does."""
        expected = entries_of(model, self._codec)
        for wanted, found in zip(expected, self.entries, strict=False):
            if wanted != found:
                return f"expected {wanted}, found {found}"
        if len(expected) != len(self.entries):
            return f"expected {len(expected)} tensors, found {len(self.entries)}"
        return ""

    def tensor(self, name: str) -> Delta:
        """The delta of one of the model's tensors, as views. Raises KeyError: no such tensor."""
        if self._codec == "bf16" or self._codec == "fp32":
            return self._file.array(name)
        return Quantized(self._file.array(f"{name}.q"), self._file.array(f"{name}.scale"))

    def pieces(self) -> Iterator[Delta]:
        """All that the file holds, in flat pieces that stay out of resident memory once the next is asked for."""
        arrays = {entry.name: self._file.array(entry.name) for entry in self.entries}
        quantised = self._codec in ("int8", "int4")
        for name in [name for name in arrays if not quantised or name.endswith(".q")]:
            delta = Quantized(arrays[name], arrays[f"{name[:-2]}.scale"]) if quantised else arrays[name].reshape(-1)
            size = element_count(delta)
            for begin in range(0, size, _PIECE):
                yield part_of(delta, begin, min(begin + _PIECE, size))
                self._file.release()

    def release(self) -> None:
        """As `WeightsFile.release`."""
        self._file.release()

    def close(self) -> None:
        """As `WeightsFile.close`."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _metadata(codec: Codec) -> dict[str, str]:
    return {"codec": codec, "codec_version": VERSION} if codec in ("int8", "int4") else {}


def _named(codec: str | None, version: str | None) -> str:
    if version is not None:
        return f"codec {shown(codec)}, version {shown(version)}"
    return shown(codec or "no quantised codec")
