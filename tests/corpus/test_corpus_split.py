"""The choice of held-out documents, from digests and lengths."""

from __future__ import annotations

import numpy as np
import pytest

from crosstrain.corpus.shards import DOCUMENT, Rows
from crosstrain.corpus.split import CUT, DROPPED, HELDOUT, TRAIN, Assignment, assign, runs
from crosstrain.errors import UsageError

TOP = 1 << 64


def table(*documents: tuple[float, int]) -> Rows:
    """Rows from (digest as a fraction of its range, tokens)."""
    return np.array([(int(digest * TOP), 0, tokens, 0, 0) for digest, tokens in documents], DOCUMENT)


def choose(*documents: tuple[float, int], heldout: float = 0.1, keep: bool = False) -> tuple[list[int], Assignment]:
    assignment = assign(table(*documents), heldout, keep, seq_len=10)
    return assignment.destinations.tolist(), assignment


def test_the_digest_decides() -> None:
    assert choose((0.5, 50), (0.01, 50), (0.09, 50), (0.11, 50))[0] == [TRAIN, HELDOUT, HELDOUT, TRAIN]


def test_more_documents_follow_until_a_window_is_full() -> None:
    assert choose((0.5, 50), (0.01, 4), (0.9, 50), (0.4, 9))[0] == [TRAIN, HELDOUT, TRAIN, HELDOUT]


def test_training_keeps_a_window() -> None:
    assert choose((0.01, 50), (0.02, 50), (0.03, 50))[0] == [HELDOUT, HELDOUT, TRAIN]
    assert choose((0.01, 50), (0.02, 15), heldout=0.9)[0] == [HELDOUT, TRAIN]


def test_the_longest_document_is_cut_where_whole_ones_do_not_do() -> None:
    destinations, assignment = choose((0.5, 200), (0.01, 3))
    assert destinations == [CUT, TRAIN]
    assert (assignment.rule, assignment.tail_tokens) == ("tail-of-one-document", 20)
    assert choose((0.5, 22))[1].tail_tokens == 11


def test_copies_go_with_the_first() -> None:
    documents = ((0.01, 50), (0.5, 50), (0.01, 50), (0.5, 50))
    destinations, assignment = choose(*documents)
    assert destinations == [HELDOUT, TRAIN, DROPPED, DROPPED]
    assert assignment.duplicates == 2
    assert choose(*documents, keep=True)[0] == [HELDOUT, TRAIN, HELDOUT, TRAIN]


@pytest.mark.parametrize(
    ("documents", "keep"),
    [
        ([(0.01, 9)] * 20 + [(0.5, 3)], True),
        ([(0.1, 8), (0.2, 8), (0.3, 8)], False),
        ([(0.5, 21)], False),
    ],
)
def test_too_little_for_two_windows(documents: list[tuple[float, int]], keep: bool) -> None:
    with pytest.raises(UsageError, match="too short"):
        choose(*documents, keep=keep)


def test_runs_join_what_goes_the_same_way() -> None:
    destinations = np.array([TRAIN, TRAIN, DROPPED, CUT, CUT, TRAIN], np.int8)
    assert runs(destinations) == [(0, 2, TRAIN), (2, 3, DROPPED), (3, 4, CUT), (4, 5, CUT), (5, 6, TRAIN)]
    assert runs(destinations[:0]) == []
