"""Amounts agree with their nouns."""

from __future__ import annotations

import pytest

from crosstrain.domain.plural import counted


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (counted(0, "node"), "0 nodes"),
        (counted(1, "node"), "1 node"),
        (counted(2, "node"), "2 nodes"),
        (counted(1.5, "hour"), "1.5 hours"),
        (counted(1, "pass", "passes"), "1 pass"),
        (counted(3, "pass", "passes"), "3 passes"),
        (counted(12345, "token", spec=","), "12,345 tokens"),
    ],
)
def test_only_one_is_singular(made: str, sentence: str) -> None:
    assert made == sentence
