"""A reply that does not come holds up no other."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from crosstrain.flower.pulls import Pulls

PATIENCE_S = 20.0


class Grid:
    """Has replies to some messages; a pull of `stuck` waits until it is let go."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.let_go = threading.Event()
        self.asked: list[str] = []

    def pull(self, message: str) -> Sequence[str]:
        self.asked.append(message)
        if message == "stuck":
            assert self.let_go.wait(PATIENCE_S)
        if message == "broken":
            raise ConnectionError("the SuperLink is gone")
        return [f"to {message}"] if message in self.there | {"stuck"} else []


@pytest.fixture
def grid() -> Iterator[Grid]:
    made = Grid()
    yield made
    made.let_go.set()


def until_there(pulls: Pulls[str], *messages: str) -> list[str]:
    while not (found := pulls.of(messages)):
        pass
    return found


def test_a_reply_is_taken_once_it_is_there(grid: Grid) -> None:
    pulls = Pulls(grid.pull)
    assert pulls.of(["a", "b"]) == []
    grid.there.add("b")
    assert until_there(pulls, "a", "b") == ["to b"]


def test_a_pull_that_waits_holds_up_no_other_and_is_begun_once(grid: Grid) -> None:
    pulls = Pulls(grid.pull)
    for number in range(5):
        grid.there.add(f"quick {number}")
        assert until_there(pulls, "stuck", f"quick {number}") == [f"to quick {number}"]
    assert grid.asked.count("stuck") == 1
    grid.let_go.set()
    assert until_there(pulls, "stuck") == ["to stuck"]


def test_a_message_that_is_not_waited_for_any_more_is_forgotten(grid: Grid) -> None:
    pulls = Pulls(grid.pull)
    assert pulls.of(["stuck"]) == []
    assert pulls.of([]) == []
    grid.let_go.set()
    assert until_there(pulls, "stuck") == ["to stuck"]
    assert grid.asked.count("stuck") == 2


def test_what_a_pull_raises_is_raised(grid: Grid) -> None:
    with pytest.raises(ConnectionError, match="SuperLink is gone"):
        until_there(Pulls(grid.pull), "broken")
