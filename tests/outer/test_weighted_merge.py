"""The merge: exact shares, a fixed order, the same bits for every chunk size, and memory that does not grow."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosstrain.outer.encoding import BF16, BLOCK, Delta, Quantized, quantize, round_to_bf16, widen
from crosstrain.outer.outer_optimizer import OuterHyperparameters
from crosstrain.outer.weighted_merge import (
    Kernel,
    Merged,
    NumpyKernel,
    Workspace,
    compiled_kernel,
    merge_tensor,
    weigh,
)

PAPER = OuterHyperparameters(0.7, 0.9)
FEDAVG = OuterHyperparameters(1.0, 0.0)


def state(size: int, sites: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """w, m and deltas; every second delta is bfloat16."""
    rng = np.random.default_rng(seed)
    weights, momentum, *deltas = (rng.standard_normal(size).astype(np.float32) for _ in range(2 + sites))
    return weights, momentum, [delta.astype(BF16) if i % 2 else delta for i, delta in enumerate(deltas)]


def merged(
    weights: np.ndarray,
    momentum: np.ndarray | None,
    deltas: Sequence[Delta],
    tokens: Sequence[int],
    hyper: OuterHyperparameters = PAPER,
    chunk: int = 1 << 16,
    kernel: Kernel | None = None,
) -> Merged:
    into = Merged(np.empty(weights.size, np.float32), np.empty(weights.size, np.float32), np.empty(weights.size, BF16))
    at = 0
    for new in merge_tensor(weights, momentum, deltas, weigh(tokens), hyper, Workspace(chunk, kernel)):
        for target, values in zip(into, new, strict=True):
            target[at : at + values.size] = values
        at += new.weights.size
    assert at == weights.size
    return into


def bits(result: Merged) -> tuple[bytes, ...]:
    return tuple(array.tobytes() for array in result)


def test_fedavg_is_the_weighted_mean() -> None:
    weights, momentum, deltas = state(1000, 3)
    tokens = (5, 1, 4)
    mean = sum(n * delta.astype(np.float64) for n, delta in zip(tokens, deltas, strict=True)) / 10
    result = merged(weights, momentum, deltas, tokens, FEDAVG)
    np.testing.assert_allclose(result.weights, weights + mean, rtol=0, atol=1e-6)
    np.testing.assert_allclose(result.momentum, mean, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(result.wire, result.weights.astype(BF16))


def test_two_sites_on_the_golden_vector() -> None:
    """Token weights .25 and .75 of deltas that average to the scalar vector of test_outer_optimizer."""
    weights, momentum = np.zeros(1, np.float32), np.zeros(1, np.float32)
    for mean, expected in zip((1.0, 0.5, -0.25, 0.125), (1.33, 2.562, 3.0233, 3.76222), strict=True):
        deltas = [np.array([mean - 3], np.float32), np.array([mean + 1], np.float32)]
        result = merged(weights, momentum, deltas, (100, 300))
        weights, momentum = result.weights, result.momentum
        assert weights[0] == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize("chunk", [256, 512, 1024])
def test_chunk_size_and_repetition_change_no_bit(chunk: int) -> None:
    arguments = (*state(1000, 3), (3, 2, 1))
    assert bits(merged(*arguments, chunk=chunk)) == bits(merged(*arguments)) == bits(merged(*arguments))


def test_in_place_and_shaped_equal_the_stream() -> None:
    weights, momentum, deltas = state(600, 2)
    expected = merged(weights, momentum, deltas, (1, 2))
    into = Merged(weights, momentum, np.empty(600, BF16))
    shaped = [delta.reshape(20, 30) for delta in deltas]
    views = weights.reshape(20, 30), momentum.reshape(20, 30)
    for _ in merge_tensor(*views, shaped, weigh((1, 2)), PAPER, Workspace(256), into):
        pass
    assert bits(into) == bits(expected)


def test_read_only_and_misaligned_inputs() -> None:
    weights, momentum, deltas = state(500, 2)
    expected = merged(weights, momentum, deltas, (1, 2))

    def mapped(array: np.ndarray) -> np.ndarray:
        return np.frombuffer(b"??" + array.tobytes(), np.uint8)[2:].view(array.dtype)

    result = merged(mapped(weights), mapped(momentum), [mapped(delta) for delta in deltas], (1, 2))
    assert bits(result) == bits(expected)


def test_as_many_chunks_as_are_kept_stay_valid() -> None:
    weights, momentum, deltas = state(256 * 7 + 5, 2)
    expected = merged(weights, momentum, deltas, (1, 2))
    chunks = list(merge_tensor(weights, momentum, deltas, weigh((1, 2)), PAPER, Workspace(256, kept=8)))
    assert bits(Merged(*(np.concatenate(arrays) for arrays in zip(*chunks, strict=True)))) == bits(expected)
    overwritten = list(merge_tensor(weights, momentum, deltas, weigh((1, 2)), PAPER, Workspace(256, kept=7)))
    assert bits(overwritten[0]) != bits(chunks[0])
    assert [bits(chunk) for chunk in overwritten[1:]] == [bits(chunk) for chunk in chunks[1:]]


def test_empty_tensor() -> None:
    assert merged(*state(0, 2), (1, 1)).weights.size == 0


def test_memory_is_the_workspace_whatever_the_model() -> None:
    peaks = []
    for size in (1 << 18, 1 << 21):
        weights, momentum, deltas = state(size, 3)
        tracemalloc.start()
        for _ in merge_tensor(weights, momentum, deltas, weigh((1, 1, 1)), PAPER, Workspace(1 << 14)):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert max(peaks) < 18 * (1 << 14) + 64 * 1024
    assert peaks[1] - peaks[0] < 16 * 1024


@pytest.mark.parametrize("tokens", [(), (0,), (0, 3), (3, 0), (3, -1), (-1, 1)])
def test_a_contribution_without_tokens_is_not_merged(tokens: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="token counts >= 1"):
        weigh(tokens)


def test_factors_and_share_are_rounded_once() -> None:
    assert weigh((3, 1, 2)) == ((np.float32(1), np.float32(1 / 3), np.float32(2 / 3)), np.float32(1 / 2))
    assert weigh((5,)) == ((np.float32(1),), np.float32(1))
    assert weigh((1, 10**30))[0][1] == np.float32(1e30)


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=50))
def test_the_weights_sum_to_one(tokens: list[int]) -> None:
    factors, share = weigh(tokens)
    assert sum(float(factor) for factor in factors) * float(share) == pytest.approx(1, rel=2**-22)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_order_matters_only_to_the_last_bits(data: st.DataObject) -> None:
    tokens = data.draw(st.lists(st.integers(1, 10**9), min_size=1, max_size=6))
    order = data.draw(st.permutations(range(len(tokens))))
    weights, momentum, deltas = state(100, len(tokens), data.draw(st.integers(0, 100)))
    first = merged(weights, momentum, deltas, tokens)
    arrived = [(i, deltas[i], tokens[i]) for i in order]
    permuted = merged(weights, momentum, [delta for _, delta, _ in arrived], [count for *_, count in arrived])
    np.testing.assert_allclose(permuted.weights, first.weights, rtol=0, atol=1e-5)
    canonical = sorted(arrived, key=lambda contribution: contribution[0])
    again = merged(weights, momentum, [delta for _, delta, _ in canonical], [count for *_, count in canonical])
    assert bits(again) == bits(first)


def test_a_single_contribution_goes_in_unchanged() -> None:
    weights, _, (delta,) = state(1000, 1)
    result = merged(weights, None, [delta], (12345,), FEDAVG)
    np.testing.assert_array_equal(result.weights, weights + delta)
    np.testing.assert_array_equal(result.momentum, delta)


def test_no_momentum_is_zero_momentum() -> None:
    weights, momentum, deltas = state(1000, 2)
    assert bits(merged(weights, None, deltas, (1, 2))) == bits(merged(weights, 0 * momentum, deltas, (1, 2)))


@pytest.mark.parametrize("begun", [1, 2, 3, 4])
def test_a_sum_begun_before_the_last_delta_came_gives_the_same_bits(begun: int) -> None:
    weights, momentum, arrays = state(1000, 4)
    deltas: list[Delta] = [*arrays[:2], quantize(arrays[2], "int8"), arrays[3]]
    weighting, workspace = weigh((30, 7, 50, 11)), Workspace(256)
    so_far, widened = np.zeros((2, 1000), np.float32)
    for delta, factor in zip(deltas[:begun], weighting.factors, strict=False):
        widen(delta, widened)
        so_far = so_far + widened * factor
    rest = weighting._replace(factors=(np.float32(1), *weighting.factors[begun:]))
    into = Merged(np.empty(1000, np.float32), np.empty(1000, np.float32), np.empty(1000, BF16))
    for _ in merge_tensor(weights, momentum, [so_far, *deltas[begun:]], rest, PAPER, workspace, into):
        pass
    assert bits(into) == bits(merged(weights, momentum, deltas, (30, 7, 50, 11)))


def test_unfit_arguments() -> None:
    weights, momentum, deltas = state(10, 2)
    eighth, fourth = quantize(deltas[0], "int8"), quantize(deltas[0], "int4")
    weighting, workspace = weigh((1, 1)), Workspace(256)
    cases: list[tuple[np.ndarray, np.ndarray, list[Delta], str]] = [
        (weights.astype(np.float64), momentum, [*deltas], "weights: expected 10 contiguous elements of float32"),
        (weights, momentum[:9], [*deltas], "momentum: expected 10"),
        (weights, momentum.astype(BF16), [*deltas], "momentum: .* found bfloat16"),
        (weights, momentum, [deltas[0], deltas[1][:5]], "delta 1: expected 10"),
        (weights, momentum, [deltas[0], np.repeat(deltas[1], 2)[::2]], "delta 1: .* strides"),
        (weights, momentum, [deltas[0], eighth._replace(steps=eighth.steps[:, :128])], "delta 1: expected 1 contig"),
        (weights, momentum, [fourth._replace(scales=fourth.scales[:0]), deltas[0]], "delta 0: expected 1 contig"),
        (weights, momentum, [fourth._replace(scales=fourth.scales.astype(np.float32)), deltas[0]], "found uint8"),
        (weights, momentum, [deltas[0]], "found 2 for 1"),
        (weights, momentum, [], "found 2 for 0"),
    ]
    for w, m, d, message in cases:
        with pytest.raises(ValueError, match=message):
            next(merge_tensor(w, m, d, weighting, PAPER, workspace))
    with pytest.raises(ValueError, match="multiple of 256"):
        Workspace(0)
    with pytest.raises(ValueError, match="multiple of 256"):
        Workspace(300)
    with pytest.raises(ValueError, match="one or more chunks to keep"):
        Workspace(256, kept=0)


def hard_values(rng: np.random.Generator, size: int, extreme: bool) -> np.ndarray:
    """float32 of all magnitudes, subnormal and zero among them; with `extreme` any bits at all, so that sums overflow."""
    exponents = rng.integers(-149, 127 if extreme else 40, size)
    values = (rng.standard_normal(size) * 2.0**exponents).astype(np.float32)
    values[rng.random(size) < 0.1] = rng.choice([0.0, -0.0, 1e-45, -1e-40])
    if extreme:
        anything = rng.integers(0, 1 << 32, size, dtype=np.uint32).view(np.float32)
        values = np.where(rng.random(size) < 0.3, anything, values)
        values[rng.random(size) < 0.05] = np.inf
    return values


@pytest.mark.skipif(compiled_kernel() is None, reason="the package was installed without a C compiler")
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 3 * BLOCK), st.booleans())
def test_the_compiled_merge_is_the_numpy_merge_to_the_bit(seed: int, size: int, extreme: bool) -> None:
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        values = [hard_values(rng, size, extreme) for _ in range(6)]
        weights, momentum, *floats = values
        encoded: list[Delta] = [
            floats[0],
            floats[1].astype(BF16),
            quantize(floats[2], "int8"),
            quantize(floats[3], "int4"),
        ]
    deltas = [encoded[i] for i in rng.permutation(4)[: rng.integers(1, 5)]]
    tokens = [int(rng.integers(1, 10**9)) for _ in deltas]
    hyper = OuterHyperparameters(float(rng.uniform(0.1, 1)), float(rng.uniform(0, 0.95)))
    old_momentum = momentum if rng.random() < 0.8 else None
    found = merged(weights, old_momentum, deltas, tokens, hyper)
    expected = merged(weights, old_momentum, deltas, tokens, hyper, kernel=NumpyKernel())
    for left, right in zip(found, expected, strict=True):
        nan = np.isnan(right.astype(np.float32))
        np.testing.assert_array_equal(np.isnan(left.astype(np.float32)), nan)
        np.testing.assert_array_equal(left[~nan].view(np.uint8), right[~nan].view(np.uint8))
    if not extreme:
        assert bits(found) == bits(expected)


@pytest.mark.skipif(compiled_kernel() is None, reason="the package was installed without a C compiler")
def test_every_quantised_step_and_bfloat16_is_decoded_alike() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(BF16)
    steps = np.arange(BLOCK, dtype=np.uint8)
    scales = np.array([0, 1e-38, 0.37, -2.5, 3e38], np.float32).astype(BF16)
    eighth = Quantized(np.tile(steps.view(np.int8), (5, 1)), scales)
    fourth = Quantized(np.stack([steps[:128], steps[128:]] * 2 + [steps[:128]]), scales)
    for delta, size in (
        (every[np.isfinite(every.astype(np.float32))], 65280),
        (eighth, 5 * BLOCK),
        (fourth, 5 * BLOCK),
    ):
        weights = np.zeros(size, np.float32)
        found = merged(weights, None, [delta], (1,), FEDAVG)
        assert bits(found) == bits(merged(weights, None, [delta], (1,), FEDAVG, kernel=NumpyKernel()))
        assert np.count_nonzero(found.weights) > size // 2


@pytest.mark.torch
def test_bf16_rounding_is_torchs() -> None:
    torch = pytest.importorskip("torch")
    top = np.arange(1 << 16, dtype=np.uint32) << 16
    low = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    source = (top[:, None] | low).reshape(-1).view(np.float32)  # every bfloat16 and its neighbourhood
    found = np.empty(source.size, BF16)
    round_to_bf16(source, found)
    expected = torch.from_numpy(source).bfloat16()
    nan = np.isnan(source)
    np.testing.assert_array_equal(found[~nan].view(np.uint16), expected.view(torch.uint16).numpy()[~nan])
    assert np.isnan(found[nan].astype(np.float32)).all()
