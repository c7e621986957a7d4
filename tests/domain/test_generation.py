from __future__ import annotations

from dataclasses import replace

import pytest

from crosstrain.domain.generation import GenerationRecord, chain_problem, is_finished
from crosstrain.domain.ids import Digest, Generation, Instant


def record(number: int, parent: int | None, step: int = 0) -> GenerationRecord:
    digest = Digest("a" * 64)
    base = None if parent is None else Generation(parent)
    return GenerationRecord(Generation(number), base, digest, digest, None, step, 0, None, None, 1, Instant(0))


CHAIN = [record(0, None), record(1, 0, 10), record(2, 1, 10)]


def test_chain_in_steps_of_one_is_whole() -> None:
    assert chain_problem(CHAIN) is None
    assert chain_problem([]) is None


@pytest.mark.parametrize(
    ("chain", "problem"),
    [
        ([CHAIN[0], CHAIN[2]], "generation 1 is missing, found 2"),
        ([CHAIN[1]], "generation 0 is missing"),
        ([replace(CHAIN[0], parent=Generation(0))], "generation 0 names 0"),
        ([CHAIN[0], CHAIN[1], replace(CHAIN[2], parent=Generation(0))], "generation 2 names 0 as its parent"),
        ([CHAIN[0], CHAIN[1], replace(CHAIN[2], parent=None)], "generation 2 names None"),
        ([CHAIN[0], CHAIN[1], replace(CHAIN[2], global_step=9)], "goes back from step 10 to 9"),
    ],
)
def test_chain_problem_names_the_link_that_is_broken(chain: list[GenerationRecord], problem: str) -> None:
    assert problem in (chain_problem(chain) or "")


@pytest.mark.parametrize(
    ("generation", "merged", "yes", "reason"),
    [
        (0, 0, False, "round 1 of 5, epoch 1 of 2"),
        (4, 1, False, "round 5 of 5, epoch 2 of 2"),
        (5, 0, True, "all 5 rounds are done"),
        (3, 2, True, "the corpus was merged 2 times"),
    ],
)
def test_run_is_finished_after_its_rounds_or_epochs(generation: int, merged: int, yes: bool, reason: str) -> None:
    verdict = is_finished(Generation(generation), 5, merged, 2)
    assert (verdict.yes, verdict.reason) == (yes, reason)


def test_run_of_one_epoch_says_so_in_the_singular() -> None:
    assert is_finished(Generation(1), 5, 1, 1).reason == "the corpus was merged 1 time"
