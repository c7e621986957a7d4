"""Weights files of a model that does not exist: the sizes of a dense transformer, values that mean nothing."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from crosstrain.storage.weights_file import DType, Entry, WeightsWriter

TENSORS = 310
NORMS = 103
"""Of them tiny, as gains of norms are."""
NORM_SIZE = 1024
EMBEDDING_SHARE = 0.26
"""Part of all parameters that the largest tensor has, as in Qwen3-0.6B."""
TILE = 1 << 20


def shapes(mib: float) -> list[tuple[str, tuple[int, ...]]]:
    """`TENSORS` tensors that take `mib` MiB in bf16."""
    left = int(mib * 2**20 / 2) - NORMS * NORM_SIZE
    embedding = int(left * EMBEDDING_SHARE) // NORM_SIZE
    matrices = TENSORS - NORMS - 1
    rows = max(1, (left // NORM_SIZE - embedding) // matrices)
    named: list[tuple[str, tuple[int, ...]]] = [("embedding", (max(1, embedding), NORM_SIZE))]
    for number in range(matrices):
        named.append((f"layer.{number}.weight", (rows, NORM_SIZE)))
        if number < NORMS:
            named.append((f"layer.{number}.norm", (NORM_SIZE,)))
    return named


def write_weights(path: Path, mib: float, dtype: DType, scale: float) -> None:
    """A file of finite values of about `scale`, different from one megabyte to the next in place only: nobody compresses.

    Args:
        mib: size in bf16; a file of float32 is twice as large.
    """
    tile = (np.random.default_rng(0).standard_normal(TILE, np.float32) * np.float32(scale)).astype(np.float32)
    entries = [Entry(name, dtype, shape) for name, shape in shapes(mib)]
    with WeightsWriter(path, entries) as writer:
        for entry in entries:
            for begin in range(0, entry.size, TILE):
                writer.append(entry.name, tile[: min(TILE, entry.size - begin)])


def stamp(path: Path, number: int) -> None:
    """Makes a bf16 file unlike all others, in its last four values; they stay small and finite."""
    data = b"".join(bytes([byte, 0x3A]) for byte in number.to_bytes(4, "little"))
    handle = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(handle, data, os.fstat(handle).st_size - len(data))
        os.fsync(handle)
    finally:
        os.close(handle)
