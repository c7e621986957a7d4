"""The windows proof finds what is lost and what is trained twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from crosstrain.demo.windows_proof import MergedLease, Spans, WindowsProof, prove, read_logs
from crosstrain.domain.block import Corpus
from crosstrain.domain.ids import Token
from crosstrain.domain.phase import window_numbers
from crosstrain.errors import IntegrityError
from crosstrain.site.order import BlockOrder

ORDER = BlockOrder(Corpus(windows=23, block_windows=4), seed=5)
"""Six blocks, the last of three windows."""
FIRST, SECOND, AGAIN = ((0, 0, 2),), ((0, 2, 6),), ((1, 0, 1),)


def windows(spans: Spans) -> list[int]:
    return list(window_numbers(ORDER.windows(spans)))


def proved(trained: dict[int, list[int]], ledger: Spans = ((0, 0, 6), (1, 0, 1))) -> WindowsProof:
    leases = [MergedLease(Token(number), "alpha", spans) for number, spans in ((1, FIRST), (2, SECOND), (5, AGAIN))]
    return prove(ORDER, leases, ledger, {Token(token): fed for token, fed in trained.items()})


def honest() -> dict[int, list[int]]:
    return {1: windows(FIRST), 2: windows(SECOND), 3: [0, 1], 5: windows(AGAIN)}


def test_an_honest_run_is_clean() -> None:
    found = proved(honest())
    assert (found.merged, found.lost, found.duplicated, found.problems) == (23 + len(windows(AGAIN)), 0, 0, ())
    assert found.ok


@pytest.mark.parametrize(("token", "at"), [(1, 0), (2, 3), (5, 1)])
def test_a_window_that_was_not_trained_is_lost(token: int, at: int) -> None:
    trained = honest()
    window = trained[token].pop(at)
    found = proved(trained)
    assert (found.lost, found.duplicated, found.ok) == (1, 0, False)
    assert found.problems == (f"lease {token} of alpha: windows not trained: {window}",)


def test_a_lease_without_a_log_is_lost() -> None:
    trained = honest()
    del trained[1]
    assert proved(trained).lost == len(windows(FIRST))


@pytest.mark.parametrize("token", [1, 5])
def test_a_window_that_was_trained_twice_is_duplicated(token: int) -> None:
    trained = honest()
    trained[token].append(trained[token][0])
    found = proved(trained)
    assert (found.lost, found.duplicated) == (0, 1)
    assert "or twice" in found.problems[0]


def test_two_leases_that_exchanged_windows_are_found_though_the_totals_agree() -> None:
    trained = honest()
    trained[1][0], trained[2][0] = trained[2][0], trained[1][0]
    found = proved(trained)
    assert (found.lost, found.duplicated, len(found.problems), found.ok) == (0, 0, 2, False)


def test_a_block_in_the_model_that_the_ledger_would_lease_again_is_duplicated() -> None:
    assert proved(honest(), ((0, 0, 5), (1, 0, 1))).duplicated == len(windows(((0, 5, 6),)))


def test_a_block_merged_without_a_contribution_is_lost() -> None:
    assert proved(honest(), ((0, 0, 6), (1, 0, 2))).lost == len(windows(((1, 1, 2),)))


def test_many_windows_are_not_all_named() -> None:
    assert proved({}).problems[1].endswith(" ...")


def test_the_ranks_of_a_site_add_up(tmp_path: Path) -> None:
    for rank, own in enumerate(("7 8", "9")):
        (tmp_path / f"windows-{rank}.log").write_text(f"load 0\nrun 3\n3 0 0 {rank} {own}\n")
    assert read_logs([tmp_path, tmp_path / "none"]) == {Token(3): (7, 8, 9)}


def test_a_log_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "windows-0.log").write_bytes(b"\xff\xfe")
    with pytest.raises(IntegrityError, match=r"windows-0\.log, line 1"):
        read_logs([tmp_path])
