from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstrain.domain.block import Corpus
from crosstrain.domain.ids import Generation
from crosstrain.domain.phase import (
    NOTHING,
    PhasePlan,
    PhaseResult,
    WindowRange,
    blocks_completed,
    digest_windows,
    join_digests,
    join_results,
    next_step_windows,
    step_count,
    sum_windows,
    window_numbers,
)

block_sizes = st.lists(st.integers(1, 9), min_size=1, max_size=8)


def plan_of(sizes: list[int], per_step: int) -> PhasePlan:
    blocks, first = [], 0
    for size in sizes:
        blocks.append(WindowRange(first, size))
        first += size
    return PhasePlan(Generation(0), 0, per_step, (), tuple(blocks))


@given(block_sizes, st.integers(1, 12))
def test_phase_unstopped_trains_every_window_in_exactly_one_step(sizes: list[int], per_step: int) -> None:
    plan, done, steps = plan_of(sizes, per_step), 0, []
    while taken := next_step_windows(done, plan, False):
        steps.append(taken)
        done += taken
    assert done == plan.windows == sum(sizes)
    assert all(taken == per_step for taken in steps[:-1])
    assert len(steps) == step_count(plan.windows, per_step)
    assert blocks_completed(done, plan.blocks) == len(sizes)


@given(block_sizes, st.integers(1, 12), st.integers(0, 20))
def test_phase_stopped_after_any_step_ends_at_a_block_boundary(sizes: list[int], per_step: int, stop: int) -> None:
    plan, done, step = plan_of(sizes, per_step), 0, 0
    boundaries = [sum(sizes[:count]) for count in range(len(sizes) + 1)]
    asked_at = None
    while True:
        stopping = step >= stop
        if stopping and asked_at is None:
            asked_at = done
        taken = next_step_windows(done, plan, stopping)
        if not taken:
            break
        done, step = done + taken, step + 1
    assert done in boundaries
    assert boundaries[blocks_completed(done, plan.blocks)] == done
    if asked_at is not None:
        assert done == min(boundary for boundary in boundaries if boundary >= asked_at)


def test_phase_stopped_before_its_first_step_trains_nothing() -> None:
    assert next_step_windows(0, plan_of([4, 4], 2), True) == 0


@given(st.lists(st.integers(0, 2**40), max_size=60), st.integers(1, 5), st.randoms(use_true_random=False))
def test_windows_digest_adds_up_over_ranks_in_any_order(windows: list[int], ranks: int, dice: random.Random) -> None:
    shares: list[list[int]] = [[] for _ in range(ranks)]
    for window in windows:
        shares[dice.randrange(ranks)].append(window)
    parts = [sum_windows(share) for share in shares]
    assert digest_windows(len(windows), sum(parts)) == digest_windows(len(windows), sum_windows(sorted(windows)))


@given(st.sets(st.integers(0, 2**40), min_size=1, max_size=30))
def test_windows_digest_changes_with_a_window_more_or_less_or_twice(windows: set[int]) -> None:
    ordered = sorted(windows)
    whole = digest_windows(len(ordered), sum_windows(ordered))
    twice = [*ordered, ordered[0]]
    swapped = [ordered[-1] + 1, *ordered[:-1]]
    assert digest_windows(len(ordered) - 1, sum_windows(ordered[1:])) != whole
    assert sum_windows(twice) != sum_windows(ordered)
    assert digest_windows(len(swapped), sum_windows(swapped)) != whole


def test_windows_digest_of_two_segments_is_that_of_the_whole_phase() -> None:
    first, second = [4, 5, 6], [9, 8]
    joined = join_digests(digest_windows(3, sum_windows(first)), digest_windows(2, sum_windows(second)))
    assert joined == digest_windows(5, sum_windows(first + second))
    with pytest.raises(ValueError):
        join_digests("3", joined)


def test_results_of_two_segments_add_up() -> None:
    first = PhaseResult(2, 4, 32, 1, digest_windows(4, 10), (3.0, 2.0), (1.0, 1.0), 4.0, stopped=True)
    second = PhaseResult(1, 2, 16, 1, digest_windows(2, 7), (1.5,), (0.5,), 2.0)
    joined = PhaseResult(3, 6, 48, 2, digest_windows(6, 17), (3.0, 2.0, 1.5), (1.0, 1.0, 0.5), 6.0)
    assert join_results(first, second) == joined
    assert join_results(NOTHING, joined) == joined


def test_windows_digest_golden_value_never_changes() -> None:
    assert digest_windows(3, sum_windows([0, 1, 2])) == "3:a1a7ca0bb8ade572fad1e278d73aae62"


def test_window_numbers_follow_the_order_of_the_blocks() -> None:
    assert list(window_numbers([WindowRange(8, 2), WindowRange(0, 3)])) == [8, 9, 0, 1, 2]


@pytest.mark.parametrize(
    ("windows", "block_windows", "blocks", "last"), [(10, 5, 2, 5), (11, 5, 3, 1), (4, 5, 1, 4), (1, 1, 1, 1)]
)
def test_corpus_is_cut_into_blocks_with_a_short_last_one(
    windows: int, block_windows: int, blocks: int, last: int
) -> None:
    corpus = Corpus(windows, block_windows)
    assert corpus.blocks == blocks
    assert corpus.block(blocks - 1) == WindowRange(windows - last, last)
    assert list(window_numbers(corpus.block(number) for number in range(blocks))) == list(range(windows))


def test_corpus_window_counts_allow_for_the_short_last_block() -> None:
    assert Corpus(11, 5).window_counts(2) == {10, 6}
    assert Corpus(10, 5).window_counts(2) == {10}
