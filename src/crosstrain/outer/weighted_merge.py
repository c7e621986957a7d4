"""The merge: deltas of one round -> token-weighted mean -> outer step -> new weights, momentum and bf16 copy.

    sum  = ((d_0 + f_1 d_1) + f_2 d_2) + ...     f_i = fl32(n_i / n_0)
    mean = share sum                             share = fl32(n_0 / (n_0 + n_1 + ...))

n_i are the tokens of contribution i; their order is the recorded one of the run (`coordinator/publisher.py`). A sum that was
begun before the last contribution came, and before the total was known, can be gone on with and gives the same bits; and a
single contribution goes in unchanged, because its factor and share are 1.

It walks over flat tensors in chunks, so its memory is one `Workspace` whatever the size of the model and
the number of sites. The result is the same to the bit on every machine, for every chunk size, compiled (fused.c) or in numpy,
because each element sees the same correctly rounded float32 operations. Reductions, which would depend on vector width, are not
used. Only the bits of a NaN are not promised; finite deltas make none unless the weights overflow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import cycle
from typing import NamedTuple, Protocol

import numpy as np

from crosstrain.outer.encoding import (
    BF16,
    BLOCK,
    Array,
    Delta,
    Float32,
    Quantized,
    block_count,
    part_of,
    quantize,
    round_to_bf16,
    widen,
)
from crosstrain.outer.outer_optimizer import OuterHyperparameters, outer_step_chunk

CHUNK = 1 << 16
"""Elements, a multiple of 256. In numpy, 32 Ki to 512 Ki are within noise of each other and 8 Ki takes twice as long, the overhead
of fifteen calls per chunk; compiled, the size hardly matters."""


class Merged(NamedTuple):
    """New values of one chunk or one tensor: float32 weights and momentum, bfloat16 weights for the wire."""

    weights: Float32
    momentum: Float32
    wire: Array


class Weighting(NamedTuple):
    """What the tokens of a round's contributions make of their deltas; in the order of the contributions.

    Attributes:
        factors: f_i, what each delta is multiplied by before they are added up; the first is 1.
        share: what the sum is multiplied by.
    """

    factors: tuple[np.float32, ...]
    share: np.float32


class Kernel(Protocol):
    """Merges one chunk. Arrays are flat, and of n elements unless quantised; factors are as many as deltas."""

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
        """Fills `new` (weights, momentum, wire), which may be the inputs themselves. A momentum of None is zero."""
        ...


class NumpyKernel:
    """`Kernel` for chunks of up to `chunk` elements; runs anywhere."""

    def __init__(self, chunk: int = CHUNK) -> None:
        self._sum = np.empty(chunk, np.float32)
        self._scratch = np.empty(chunk, np.float32)

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
        """See `Kernel`."""
        mean, scratch = self._sum[: weights.size], self._scratch[: weights.size]
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            self._add_up(deltas, factors, mean)
            np.multiply(mean, share, out=mean)
            if momentum is None:
                new[1][:] = 0
                momentum = new[1]
            outer_step_chunk(weights, momentum, mean, hyper, scratch, new[0], new[1])
        round_to_bf16(new[0], new[2])

    def _add_up(self, deltas: Sequence[Delta], factors: Sequence[np.float32], out: Float32) -> None:
        """out = the weighted sum of the deltas."""
        scratch = self._scratch[: out.size]
        widen(deltas[0], out)
        np.multiply(out, factors[0], out=out)
        for delta, factor in zip(deltas[1:], factors[1:], strict=True):
            widen(delta, scratch)
            np.multiply(scratch, factor, out=scratch)
            np.add(out, scratch, out=out)


@cache
def compiled_kernel() -> Kernel | None:
    """The kernel of fused.c, if it is there and agrees with numpy on this machine to the bit."""
    from crosstrain.outer import fused

    kernel = fused.load()
    return kernel if kernel is not None and _agrees(kernel) else None


def _agrees(kernel: Kernel) -> bool:
    """Whether a kernel rounds as it should: not so if it flushes subnormals or contracts multiplication and addition."""
    rng = np.random.default_rng(0)
    weights, momentum, *deltas = rng.standard_normal((4, 2 * BLOCK + 3)).astype(np.float32)
    momentum[:BLOCK] *= np.float32(2.0**-130)
    deltas[0][:BLOCK] *= np.float32(2.0**-130)
    terms: list[Delta] = [deltas[0], quantize(deltas[1], "int4"), deltas[1].astype(BF16), quantize(deltas[0], "int8")]
    factors = [np.float32(factor) for factor in (1, 0.3, 1.7, 2**-20)]
    found = []
    for each in (kernel, NumpyKernel(weights.size)):
        new = Merged(np.zeros_like(weights), np.zeros_like(weights), np.zeros(weights.size, BF16))
        each.merge(weights, momentum, terms, factors, np.float32(0.37), OuterHyperparameters(0.7, 0.9), new)
        found.append(tuple(array.tobytes() for array in new))
    return found[0] == found[1]


class Workspace:
    """The kernel and the buffers of a merge, allocated once: 10 bytes per element of a chunk for each that is kept, and 8 more in
    numpy.

    Fresh memory costs more than the arithmetic on it (345 M elements/s first touched, 2,286 M/s afterwards).

    Args:
        kernel: by default the compiled one, or numpy where there is none.
        kept: how many chunks stay valid at a time.

    Attributes:
        chunk, kept: as given.
    """

    def __init__(self, chunk: int = CHUNK, kernel: Kernel | None = None, kept: int = 1) -> None:
        if chunk < 1 or chunk % BLOCK:
            raise ValueError(f"expected a chunk of a multiple of {BLOCK} elements, found {chunk}")
        if kept < 1:
            raise ValueError(f"expected one or more chunks to keep, found {kept}")
        self.chunk, self.kept = chunk, kept
        self.kernel = kernel or compiled_kernel() or NumpyKernel(chunk)
        buffers = [
            Merged(np.empty(chunk, np.float32), np.empty(chunk, np.float32), np.empty(chunk, BF16)) for _ in range(kept)
        ]
        self._turn = cycle(buffers)

    def buffers(self, size: int) -> Merged:
        """For the next chunk, of `size` elements; those of the chunk longest ago."""
        return Merged(*(array[:size] for array in next(self._turn)))


def weigh(tokens: Sequence[int]) -> Weighting:
    """Factors and share, each divided in float64 and rounded to float32 once.

    Raises:
        ValueError: no contribution, or one without tokens: it is not to be merged.
    """
    if min(tokens, default=0) < 1:
        raise ValueError(f"expected one or more token counts >= 1, found {list(tokens)}")
    first = tokens[0]
    return Weighting(tuple(np.float32(count / first) for count in tokens), np.float32(first / sum(tokens)))


def merge_tensor(
    weights: Array,
    momentum: Array | None,
    deltas: Sequence[Delta],
    weighting: Weighting,
    hyper: OuterHyperparameters,
    workspace: Workspace,
    into: Merged | None = None,
) -> Iterator[Merged]:
    """Merges one tensor, chunk by chunk in row-major order.

    Args:
        weights: float32 of any shape, C-contiguous; w of the base generation. Not changed unless it is in `into`.
        momentum: float32 of as many elements; m of the base generation, likewise. None is zero.
        deltas: one or more of as many elements, in the recorded order.
        weighting: of as many contributions.
        into: where to put the new values, flat; may be the inputs themselves. By default the buffers of `workspace`.

    Yields:
        The new values of each chunk, flat; without `into` valid until the workspace's turn comes to it again: with one kept
        chunk, until the next one is asked for.

    Raises:
        ValueError: arrays that do not fit each other. Raised by the first `next`.
    """
    size = weights.size
    flat_weights = _flat("weights", weights, size)
    flat_momentum = None if momentum is None else _flat("momentum", momentum, size)
    flat = flat_deltas(deltas, weighting.factors, size)
    for begin in range(0, size or 1, workspace.chunk):
        end = min(begin + workspace.chunk, size)
        part = slice(begin, end)
        new = workspace.buffers(end - begin) if into is None else Merged(*(array[part] for array in into))
        old_momentum = None if flat_momentum is None else flat_momentum[part]
        chunks = [part_of(delta, begin, end) for delta in flat]
        workspace.kernel.merge(flat_weights[part], old_momentum, chunks, weighting.factors, weighting.share, hyper, new)
        yield new


def flat_deltas(deltas: Sequence[Delta], factors: Sequence[np.float32], size: int) -> list[Delta]:
    """The deltas, flat and checked to be of `size` elements each."""
    if not deltas or len(deltas) != len(factors):
        raise ValueError(f"expected one factor for each of one or more deltas, found {len(factors)} for {len(deltas)}")
    return [_flat_delta(f"delta {i}", delta, size) for i, delta in enumerate(deltas)]


def _flat_delta(name: str, delta: Delta, size: int) -> Delta:
    if not isinstance(delta, Quantized):
        return _flat(name, delta, size, BF16)
    blocks = block_count(size)
    width = BLOCK if delta.steps.dtype == np.int8 else BLOCK // 2
    whole = delta.steps.flags.c_contiguous and delta.scales.flags.c_contiguous
    kinds = delta.steps.dtype in (np.int8, np.uint8) and delta.scales.dtype == BF16
    if not (whole and kinds and delta.steps.shape == (blocks, width) and delta.scales.shape == (blocks,)):
        raise ValueError(
            f"{name}: expected {blocks} contiguous blocks of steps and as many bfloat16 scales for {size} elements, found "
            f"{delta.steps.dtype} of shape {delta.steps.shape} and {delta.scales.dtype} of shape {delta.scales.shape}"
        )
    return delta


def _flat(name: str, array: Array, size: int, *others: np.dtype[np.generic]) -> Array:
    """The array as [size], never a copy: a copy would break the bound on memory."""
    allowed = (np.dtype(np.float32), *others)
    if array.size != size or array.dtype not in allowed or not array.flags.c_contiguous:
        raise ValueError(
            f"{name}: expected {size} contiguous elements of {' or '.join(map(str, allowed))}, "
            f"found {array.dtype} of shape {array.shape} and strides {array.strides}"
        )
    return array.reshape(-1)
