"""The merge: exact shares, a fixed order, the same bits for every chunk size, and memory that does not grow."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosstrain.outer.outer_optimizer import OuterHyperparameters
from crosstrain.outer.weighted_merge import (
    BF16,
    Merged,
    Workspace,
    accumulate_mean,
    merge_tensor,
    round_to_bf16,
    token_shares,
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
    momentum: np.ndarray,
    deltas: Sequence[np.ndarray],
    tokens: Sequence[int],
    hyper: OuterHyperparameters = PAPER,
    chunk: int = 1 << 16,
) -> Merged:
    into = Merged(np.empty(weights.size, np.float32), np.empty(weights.size, np.float32), np.empty(weights.size, BF16))
    at = 0
    for new in merge_tensor(weights, momentum, deltas, token_shares(tokens), hyper, Workspace(chunk)):
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


@pytest.mark.parametrize("chunk", [1, 7, 64, 999, 1000, 1001])
def test_chunk_size_and_repetition_change_no_bit(chunk: int) -> None:
    arguments = (*state(1000, 3), (3, 2, 1))
    assert bits(merged(*arguments, chunk=chunk)) == bits(merged(*arguments)) == bits(merged(*arguments))


def test_in_place_and_shaped_equal_the_stream() -> None:
    weights, momentum, deltas = state(600, 2)
    expected = merged(weights, momentum, deltas, (1, 2))
    into = Merged(weights, momentum, np.empty(600, BF16))
    shaped = [delta.reshape(20, 30) for delta in deltas]
    views = weights.reshape(20, 30), momentum.reshape(20, 30)
    for _ in merge_tensor(*views, shaped, token_shares((1, 2)), PAPER, Workspace(128), into):
        pass
    assert bits(into) == bits(expected)


def test_read_only_and_misaligned_inputs() -> None:
    weights, momentum, deltas = state(500, 2)
    expected = merged(weights, momentum, deltas, (1, 2))

    def mapped(array: np.ndarray) -> np.ndarray:
        return np.frombuffer(b"??" + array.tobytes(), np.uint8)[2:].view(array.dtype)

    result = merged(mapped(weights), mapped(momentum), [mapped(delta) for delta in deltas], (1, 2))
    assert bits(result) == bits(expected)


def test_empty_tensor() -> None:
    assert merged(*state(0, 2), (1, 1)).weights.size == 0


def test_memory_is_the_workspace_whatever_the_model() -> None:
    peaks = []
    for size in (1 << 18, 1 << 21):
        weights, momentum, deltas = state(size, 3)
        tracemalloc.start()
        for _ in merge_tensor(weights, momentum, deltas, token_shares((1, 1, 1)), PAPER, Workspace(1 << 14)):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert max(peaks) < 18 * (1 << 14) + 64 * 1024
    assert peaks[1] - peaks[0] < 16 * 1024


@pytest.mark.parametrize("tokens", [(), (0,), (0, 0), (3, -1), (-1, 1)])
def test_a_round_without_tokens_has_no_mean(tokens: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="positive sum"):
        token_shares(tokens)


def test_shares_are_rounded_once() -> None:
    assert token_shares((1, 2)) == (np.float32(1 / 3), np.float32(2 / 3))
    assert token_shares((5,)) == (np.float32(1),)
    assert token_shares((10**30, 0)) == (np.float32(1), np.float32(0))


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=50).filter(any))
def test_shares_sum_to_one(tokens: list[int]) -> None:
    shares = token_shares(tokens)
    assert all(share.dtype == np.float32 for share in shares)
    assert sum(float(share) for share in shares) == pytest.approx(1, abs=len(shares) * 2**-25)


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


def test_mean_of_equal_deltas_is_the_delta() -> None:
    delta = np.linspace(-1, 1, 100).astype(np.float32)
    mean = np.empty_like(delta)
    accumulate_mean(mean, [delta] * 3, token_shares((1, 1, 2)), np.empty_like(delta))
    np.testing.assert_array_equal(mean, delta)


def test_unfit_arguments() -> None:
    weights, momentum, deltas = state(10, 2)
    shares, workspace = token_shares((1, 1)), Workspace(4)
    cases: list[tuple[np.ndarray, np.ndarray, list[np.ndarray], str]] = [
        (weights.astype(np.float64), momentum, deltas, "weights: expected 10 contiguous elements of float32"),
        (weights, momentum[:9], deltas, "momentum: expected 10"),
        (weights, momentum.astype(BF16), deltas, "momentum: .* found bfloat16"),
        (weights, momentum, [deltas[0], deltas[1][:5]], "delta 1: expected 10"),
        (weights, momentum, [deltas[0], np.repeat(deltas[1], 2)[::2]], "delta 1: .* strides"),
        (weights, momentum, deltas[:1], "found 2 for 1"),
        (weights, momentum, [], "found 2 for 0"),
    ]
    for w, m, d, message in cases:
        with pytest.raises(ValueError, match=message):
            next(merge_tensor(w, m, d, shares, PAPER, workspace))
    with pytest.raises(ValueError, match="found 0 for 0"):
        next(merge_tensor(weights, momentum, [], (), PAPER, workspace))
    with pytest.raises(ValueError, match="at least one element"):
        Workspace(0)


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
