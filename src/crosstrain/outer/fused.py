"""The compiled form of the merge (fused.c), called through ctypes, where the package was built with a C compiler."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

import numpy as np

from crosstrain.outer.encoding import BF16, Array, Delta, Float32, Quantized, element_count
from crosstrain.outer.outer_optimizer import OuterHyperparameters

_KINDS = {np.dtype(np.float32): 0, BF16: 1, np.dtype(np.int8): 2, np.dtype(np.uint8): 3}


class _Term(ctypes.Structure):
    """`struct term` of fused.c."""

    _fields_ = (
        ("values", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("weight", ctypes.c_float),
        ("kind", ctypes.c_int32),
    )


class FusedKernel:
    """`weighted_merge.Kernel` in C. A call releases the interpreter."""

    def __init__(self, library: ctypes.CDLL) -> None:
        pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_float
        self._merge, self._look = library.crosstrain_merge, library.crosstrain_look
        self._merge.argtypes = [
            size,
            pointer,
            pointer,
            pointer,
            size,
            number,
            number,
            number,
            pointer,
            pointer,
            pointer,
        ]
        self._look.argtypes = [size, pointer, pointer, pointer]
        self._merge.restype = self._look.restype = None

    def merge(
        self,
        weights: Float32,
        momentum: Float32 | None,
        deltas: Sequence[Delta],
        factors: Sequence[np.float32],
        share: np.float32,
        hyper: OuterHyperparameters,
        new: tuple[Float32, Float32, Array],
    ) -> None:
        """See `weighted_merge.Kernel`."""
        self._merge(
            weights.size,
            weights.ctypes.data,
            None if momentum is None else momentum.ctypes.data,
            _terms(deltas, factors),
            len(deltas),
            share,
            hyper.eta,
            hyper.beta,
            *(array.ctypes.data for array in new),
        )

    def look(self, delta: Delta) -> tuple[float, float]:
        """See `delta.look`."""
        squares, largest = ctypes.c_double(), ctypes.c_float()
        terms = _terms([delta], [np.float32(1)])
        self._look(element_count(delta), terms, ctypes.byref(squares), ctypes.byref(largest))
        return squares.value, largest.value


def _terms(deltas: Sequence[Delta], factors: Sequence[np.float32]) -> ctypes.Array[_Term]:
    terms = (_Term * len(deltas))()
    for term, delta, factor in zip(terms, deltas, factors, strict=True):
        values = delta.steps if isinstance(delta, Quantized) else delta
        term.values, term.weight, term.kind = values.ctypes.data, float(factor), _KINDS[values.dtype]
        if isinstance(delta, Quantized):
            term.scales = delta.scales.ctypes.data
    return terms


@cache
def load() -> FusedKernel | None:
    """The compiled merge, or None where there is none or it is of another machine."""
    try:
        return FusedKernel(ctypes.CDLL(__file__.removesuffix("fused.py") + "libfused.so"))
    except (OSError, AttributeError):
        return None
