"""What is looked at in a delta before it may count: is it finite, and how large is it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from crosstrain.outer import fused
from crosstrain.outer.encoding import Delta, Quantized, element_count, part_of, widen

_CHUNK = 1 << 15  # elements; 384 KiB of buffers, so that both stay in a 512 KiB second-level cache


@dataclass(frozen=True)
class DeltaSummary:
    """Size of a delta over all its tensors.

    Attributes:
        norm: L2 norm, in units of the weights; infinite when the delta is not finite, so that it exceeds every limit.
        finite: no element is NaN or infinite.
        max_abs: largest magnitude; infinite when the delta is not finite.
    """

    norm: float
    finite: bool
    max_abs: float


def summarize_delta(arrays: Iterable[Delta]) -> DeltaSummary:
    """Reads deltas once; sums squares in float64 (no overflow, no drift at 10^9 elements).

    Args:
        arrays: of any shape, C-contiguous (a view is taken; others are copied one array at a time), or quantised. A scale
            that is not finite makes its block so.
    """
    compiled = fused.load()
    each = look if compiled is None else compiled.look
    total, largest, finite = 0.0, 0.0, True
    for array in arrays:
        squares, magnitude = each(array if isinstance(array, Quantized) else array.reshape(-1))
        finite = finite and math.isfinite(magnitude)
        total, largest = total + squares, max(largest, magnitude)
    if not finite:
        return DeltaSummary(math.inf, False, math.inf)
    return DeltaSummary(math.sqrt(total), True, largest)


def look(flat: Delta) -> tuple[float, float]:
    """Sum of squares and largest magnitude of one flat array, in numpy; the magnitude is not finite if an element is not, and
    then the sum means nothing."""
    wide, squares = np.empty(_CHUNK, np.float32), np.empty(_CHUNK, np.float64)
    total, largest, size = 0.0, 0.0, element_count(flat)
    for begin in range(0, size, _CHUNK):
        end = min(begin + _CHUNK, size)
        values, square = wide[: end - begin], squares[: end - begin]
        widen(part_of(flat, begin, end), values)
        magnitude = max(float(values.max()), -float(values.min()))  # max() of a chunk with a NaN is NaN
        if not math.isfinite(magnitude):
            return math.nan, math.inf
        largest = max(largest, magnitude)
        np.copyto(square, values)
        np.multiply(square, square, out=square)
        # add.reduce, not dot: BLAS sums in an order that depends on the processor and on its threads.
        total += float(np.add.reduce(square))
    return total, largest
