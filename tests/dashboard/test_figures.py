from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstrain.dashboard.figures import share, sparkline
from crosstrain.dashboard.wording import duration, number


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=6), st.integers(0, 200))
def test_cells_fill_the_width_and_hide_nothing(amounts: list[int], width: int) -> None:
    cells = share(amounts, width)
    assert min(cells) >= 0
    assert sum(cells) == (width if sum(amounts) else 0)
    if width >= len(amounts):
        assert all(cell > 0 for cell, amount in zip(cells, amounts, strict=True) if amount and sum(amounts))


@pytest.mark.parametrize(
    ("values", "line"),
    [([], ""), ([4.0], ""), ([4.0, 4.0], "▁▁"), ([3.0, 2.0, 1.0], "█▅▁"), ([9.0, 8.0, 3.0, 2.0, 1.0], "█▅▁")],
)
def test_sparklines_show_the_newest_values(values: list[float], line: str) -> None:
    assert sparkline(values, 3) == line


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [(-5, "0 s"), (45_400, "45 s"), (119_000, "119 s"), (600_000, "10 min"), (8_100_000, "2 h 15 min")],
)
def test_durations(milliseconds: int, words: str) -> None:
    assert duration(milliseconds) == words


def test_numbers_that_are_not_known_are_a_dash() -> None:
    assert [number(None), number(1234.567)] == ["-", "1,234.57"]
