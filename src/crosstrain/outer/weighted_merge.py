"""The merge: deltas of one round -> token-weighted mean -> outer step -> new weights, momentum and bf16 copy.

It walks over flat tensors in chunks that stay in the cache, so its memory is one `Workspace` whatever the size of the
model and the number of sites. The order of the contributions is the caller's (ascending token, the canonical one); with
it fixed the result is the same to the bit on every machine and for every chunk size, because each element sees the same
correctly rounded float32 operations. Reductions, which would depend on vector width, are not used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import ml_dtypes
import numpy as np

from crosstrain.outer.outer_optimizer import Array, Float32, OuterHyperparameters, outer_step_chunk

BF16 = np.dtype(ml_dtypes.bfloat16)

CHUNK = 1 << 16
"""Elements. benchmarks/merge.py at 20 M parameters: 32 Ki to 128 Ki take 2.8-3.7 ns per element, within noise of each
other; 8 Ki take twice that, the overhead of fifteen numpy calls per chunk."""


class Merged(NamedTuple):
    """New values of one chunk or one tensor: float32 weights and momentum, bfloat16 weights for the wire."""

    weights: Float32
    momentum: Float32
    wire: Array


class Workspace:
    """The buffers of a merge: 18 bytes per element of a chunk, allocated once.

    Fresh memory costs more than the arithmetic on it (345 M elements/s first touched, 2,286 M/s afterwards).
    """

    def __init__(self, chunk: int = CHUNK) -> None:
        if chunk < 1:
            raise ValueError(f"expected a chunk of at least one element, found {chunk}")
        self.chunk = chunk
        self.mean = np.empty(chunk, np.float32)
        self.scratch = np.empty(chunk, np.float32)
        self.merged = Merged(np.empty(chunk, np.float32), np.empty(chunk, np.float32), np.empty(chunk, BF16))


def token_shares(tokens: Sequence[int]) -> tuple[np.float32, ...]:
    """p_i = n_i / sum n, divided in float64 and rounded to float32 once; at least one share is positive.

    Raises:
        ValueError: no contribution, a negative count, or a sum of zero: such a round has no mean and no outer step.
    """
    total = sum(tokens)
    if min(tokens, default=-1) < 0 or total == 0:
        raise ValueError(f"expected token counts >= 0 with a positive sum, found {list(tokens)}")
    return tuple(np.float32(count / total) for count in tokens)


def accumulate_mean(mean: Float32, deltas: Sequence[Array], shares: Sequence[np.float32], scratch: Float32) -> None:
    """mean = ((p_0 d_0 + p_1 d_1) + p_2 d_2) + ..., in float32.

    Args:
        mean: [n] receives D.
        deltas: one or more [n], float32 or bfloat16.
        shares: p_i, as many as deltas.
        scratch: [n] overlaps none of the others.
    """
    _scale(deltas[0], shares[0], mean)
    for delta, share in zip(deltas[1:], shares[1:], strict=True):
        _scale(delta, share, scratch)
        np.add(mean, scratch, out=mean)


def _scale(delta: Array, share: np.float32, out: Float32) -> None:
    if delta.dtype == np.float32:
        np.multiply(delta, share, out=out)
    else:
        # Widening by itself first: multiply() would widen through an 8 Ki element buffer of numpy's, 10-25 % slower.
        np.copyto(out, delta)
        np.multiply(out, share, out=out)


def round_to_bf16(source: Float32, out: Array) -> None:
    """Rounds to nearest, ties to even; beyond the largest bfloat16 to infinity; NaN stays NaN.

    ml_dtypes does this at 0.5 ns per element; the same in integer operations of numpy measured 0.9 ns.
    """
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        np.copyto(out, source, casting="same_kind")


def merge_tensor(
    weights: Array,
    momentum: Array,
    deltas: Sequence[Array],
    shares: Sequence[np.float32],
    hyper: OuterHyperparameters,
    workspace: Workspace,
    into: Merged | None = None,
) -> Iterator[Merged]:
    """Merges one tensor, chunk by chunk in row-major order.

    Args:
        weights: float32 of any shape, C-contiguous; w of the base generation. Not changed unless it is in `into`.
        momentum: float32 of as many elements; m of the base generation, likewise.
        deltas: one or more of as many elements, float32 or bfloat16, in canonical order.
        shares: p_i of `token_shares`, as many as deltas.
        into: where to put the new values, flat; may be the inputs themselves. By default the buffers of `workspace`.

    Yields:
        The new values of each chunk, flat; without `into` valid until the next one is asked for.

    Raises:
        ValueError: arrays that do not fit each other. Raised by the first `next`.
    """
    flat = [_flat(name, array, weights.size) for name, array in _named(weights, momentum, deltas)]
    if not deltas or len(deltas) != len(shares):
        raise ValueError(f"expected one share for each of one or more deltas, found {len(shares)} for {len(deltas)}")
    for begin in range(0, weights.size, workspace.chunk):
        part = slice(begin, min(begin + workspace.chunk, weights.size))
        head = slice(0, part.stop - begin)
        new = Merged(*(a[head] for a in workspace.merged)) if into is None else Merged(*(a[part] for a in into))
        mean, scratch = workspace.mean[head], workspace.scratch[head]
        old_weights, old_momentum, *chunks = (array[part] for array in flat)
        accumulate_mean(mean, chunks, shares, scratch)
        outer_step_chunk(old_weights, old_momentum, mean, hyper, scratch, new.weights, new.momentum)
        round_to_bf16(new.weights, new.wire)
        yield new


def _named(weights: Array, momentum: Array, deltas: Sequence[Array]) -> Iterator[tuple[str, Array]]:
    yield from (("weights", weights), ("momentum", momentum))
    yield from ((f"delta {i}", delta) for i, delta in enumerate(deltas))


def _flat(name: str, array: Array, size: int) -> Array:
    """The array as [size], never a copy: a copy would break the bound on memory."""
    allowed = (np.float32, BF16) if name.startswith("delta") else (np.float32,)
    if array.size != size or array.dtype not in allowed or not array.flags.c_contiguous:
        raise ValueError(
            f"{name}: expected {size} contiguous elements of {' or '.join(str(np.dtype(t)) for t in allowed)}, "
            f"found {array.dtype} of shape {array.shape} and strides {array.strides}"
        )
    return array.reshape(-1)
