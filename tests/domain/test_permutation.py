"""The order of blocks is fixed for ever: two runs, two machines and two versions must train the same data."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstrain.domain.permutation import epoch_order

LARGEST_SEED = 2**63 - 1


def splitmix64(state: int) -> Iterator[int]:
    """SplitMix64 as its authors print it, without a thought for speed."""
    while True:
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        yield z ^ (z >> 31)


def durstenfeld(blocks: int, seed: int, epoch: int) -> list[int]:
    """The documented algorithm, written down once more."""
    stream = splitmix64(next(splitmix64(next(splitmix64(seed)) + epoch + 1)))
    order = list(range(blocks))
    for n in range(blocks, 1, -1):
        r = next(stream)
        while r >= 2**64 - 2**64 % n:
            r = next(stream)
        order[n - 1], order[r % n] = order[r % n], order[n - 1]
    return order


@pytest.mark.parametrize(
    ("blocks", "seed", "epoch", "golden"),
    [
        (8, 0, 0, [3, 0, 7, 4, 5, 6, 2, 1]),
        (8, 0, 1, [0, 6, 3, 2, 1, 4, 5, 7]),
        (8, 1, 0, [6, 1, 7, 0, 3, 4, 2, 5]),
        (5, LARGEST_SEED, 7, [2, 3, 0, 1, 4]),
        (12, 42, 3, [10, 1, 11, 6, 3, 7, 4, 0, 2, 8, 9, 5]),
    ],
)
def test_order_golden_values_never_change(blocks: int, seed: int, epoch: int, golden: list[int]) -> None:
    assert list(epoch_order(blocks, seed, epoch)) == golden


def test_order_of_the_papers_corpus_never_changes() -> None:
    order = epoch_order(2692, 42, 0)
    assert (
        hashlib.sha256(",".join(map(str, order)).encode()).hexdigest()
        == "2454b9bb228fd08fc1977d0a168c1e5cff7815b366803244ecfd8b6fc51583ae"
    )


@given(st.integers(1, 300), st.integers(0, LARGEST_SEED), st.integers(0, 1000))
def test_order_equals_an_independent_implementation(blocks: int, seed: int, epoch: int) -> None:
    order = list(epoch_order(blocks, seed, epoch))
    assert order == durstenfeld(blocks, seed, epoch)
    assert sorted(order) == list(range(blocks))


@given(st.integers(0, LARGEST_SEED - 1), st.integers(0, 1000))
def test_order_differs_between_epochs_and_seeds(seed: int, epoch: int) -> None:
    order = epoch_order(64, seed, epoch)
    assert order != epoch_order(64, seed, epoch + 1)
    assert order != epoch_order(64, seed + 1, epoch)


def test_order_of_one_block_is_that_block() -> None:
    assert list(epoch_order(1, 3, 5)) == [0]


def test_order_of_three_blocks_is_uniform_over_epochs() -> None:
    seen = Counter(tuple(epoch_order(3, 1, epoch)) for epoch in range(6000))
    assert len(seen) == 6
    # Expected 1,000 each, standard deviation 29.
    assert all(880 < count < 1120 for count in seen.values())


def test_order_first_position_is_uniform_over_blocks() -> None:
    seen = Counter(epoch_order(20, seed, 0)[0] for seed in range(4000))
    assert all(140 < seen[block] < 260 for block in range(20))
