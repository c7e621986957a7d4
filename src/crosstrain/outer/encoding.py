"""What a delta looks like on the wire: float32, bfloat16, or steps of a scale per block (int8, int4).

A tensor is cut, flat, into blocks of 256 elements; the last one is filled up with zeros. For each block

    scale = the smallest bfloat16 that is not below fl32(max|x| / L)         L = 127 (int8) or 7 (int4)
    step  = x / scale, rounded to the nearest integer, ties to even, clipped to -L .. L
    value = step * scale

A scale has 8 significant bits and a step at most 7, so `value` is exact in float32, and every decoder agrees. Because the
scale is rounded up, nothing but the rounding of that division is ever clipped, and |x - value| <= scale / 2 up to one rounding.
A block whose scale would be below the smallest normal bfloat16 (2^-126) has scale 0 and is all zeros. A block with NaN or
infinity in it has a NaN scale, by which the coordinator refuses the delta.

bfloat16 scales, not float16: deltas of 1e-4 have int8 scales of 1e-6, which float16 holds with three or four bits.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]
QuantizedCodec = Literal["int8", "int4"]

BF16 = np.dtype(ml_dtypes.bfloat16)

BLOCK = 256
"""Elements that share a scale."""

LEVELS: dict[QuantizedCodec, int] = {"int8": 127, "int4": 7}

_SMALLEST_SCALE = np.float32(2.0**-126)


class Quantized(NamedTuple):
    """A quantised tensor, or whole blocks of one.

    Attributes:
        steps: [blocks, 256] int8; or [blocks, 128] uint8 with two int4 steps in each byte, the first in its lower half.
        scales: [blocks] bfloat16.
    """

    steps: Array
    scales: Array


Delta = Array | Quantized
"""A delta of one tensor: float32 or bfloat16 of any shape, or quantised."""


def block_count(size: int) -> int:
    """Blocks of a tensor of `size` elements."""
    return -(-size // BLOCK)


def step_bytes(codec: QuantizedCodec) -> int:
    """Bytes of a block's steps."""
    return BLOCK if codec == "int8" else BLOCK // 2


def round_to_bf16(source: Float32, out: Array) -> None:
    """Rounds to nearest, ties to even; beyond the largest bfloat16 to infinity; NaN stays NaN.

    ml_dtypes does this at 0.5 ns per element; the same in integer operations of numpy measured 0.9 ns.
    """
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        np.copyto(out, source, casting="same_kind")


def quantize(values: Float32, codec: QuantizedCodec) -> Quantized:
    """Encodes [n] float32; its memory is about eight times that of `values`, so give it chunks of whole blocks."""
    blocks, levels = block_count(values.size), LEVELS[codec]
    padded = np.zeros((blocks, BLOCK), np.float32)
    padded.reshape(-1)[: values.size] = values
    scales = _scales(np.abs(padded).max(axis=1, initial=0.0), levels)
    wide = scales.astype(np.float32)
    usable = wide > 0  # neither zero nor NaN
    with np.errstate(invalid="ignore"):
        steps = padded / np.where(usable, wide, np.float32(1))[:, None]
    np.rint(steps, out=steps)
    np.clip(steps, -levels, levels, out=steps)
    steps[~usable] = 0
    whole = steps.astype(np.int8)
    return Quantized(whole if codec == "int8" else _packed(whole), scales)


def dequantize(delta: Quantized, out: Float32) -> None:
    """Decodes the first elements of `delta` into `out`: [n] float32, at most as many as its blocks hold."""
    steps = delta.steps if delta.steps.dtype == np.int8 else _unpacked(delta.steps)
    with np.errstate(invalid="ignore"):
        values = steps.astype(np.float32) * delta.scales.astype(np.float32)[:, None]
    out[:] = values.reshape(-1)[: out.size]


def element_count(flat: Delta) -> int:
    """Elements of a flat delta; of a quantised one those of its whole blocks."""
    return BLOCK * len(flat.scales) if isinstance(flat, Quantized) else flat.size


def part_of(delta: Delta, begin: int, end: int) -> Delta:
    """Elements `begin` to `end` of a flat delta, as views; a quantised one is cut at blocks, so `begin` is a multiple of 256."""
    if not isinstance(delta, Quantized):
        return delta[begin:end]
    if begin % BLOCK:
        raise ValueError(f"expected a multiple of {BLOCK} to cut a quantised delta at, found {begin}")
    blocks = slice(begin // BLOCK, block_count(end))
    return Quantized(delta.steps[blocks], delta.scales[blocks])


def widen(delta: Delta, out: Float32) -> None:
    """out = the values of a delta: [n] float32 each."""
    if isinstance(delta, Quantized):
        dequantize(delta, out)
    else:
        np.copyto(out, delta)


def _scales(largest: Float32, levels: int) -> Array:
    """[blocks] bfloat16, from the largest magnitude of each block."""
    exact = largest / np.float32(levels)
    # Towards infinity: the finite ones are not negative, so their bits are ordered as their values are.
    scales: Array = ((exact.view(np.uint32).astype(np.uint64) + 0xFFFF) >> 16).astype(np.uint16).view(BF16)
    scales[exact < _SMALLEST_SCALE] = 0
    scales[~np.isfinite(exact)] = np.nan
    return scales


def _packed(steps: npt.NDArray[np.int8]) -> Array:
    nibbles = steps.view(np.uint8) & 15
    pairs: Array = nibbles[:, ::2] | (nibbles[:, 1::2] << 4)
    return pairs


def _unpacked(pairs: Array) -> npt.NDArray[np.int8]:
    steps = np.empty((pairs.shape[0], BLOCK), np.int8)
    steps[:, ::2] = (pairs << 4).view(np.int8) >> 4
    steps[:, 1::2] = pairs.view(np.int8) >> 4
    return steps
