"""What a rank's window log says about the weights that were contributed."""

from __future__ import annotations

from pathlib import Path

import pytest

from crosstrain.domain.ids import Token
from crosstrain.errors import EnvironmentFault, IntegrityError
from crosstrain.site.trainer import Position
from crosstrain.site.window_log import WindowLog, trained_windows, window_log_path


def read(text: str) -> dict[int, tuple[int, ...]]:
    return {int(token): windows for token, windows in trained_windows(text.splitlines(), "windows-0.log").items()}


def test_every_lease_has_the_windows_of_its_phase() -> None:
    assert read("load 0\nrun 1\n1 0 0 0 7 8\n1 0 1 0 9\nload 1\nrun 4\n4 1 2 0 3\n") == {1: (7, 8, 9), 4: (3,)}


def test_segments_of_a_phase_add_up() -> None:
    assert read("load 0\nrun 1\n1 0 0 0 7\nrun 1\n1 0 1 0 8\n") == {1: (7, 8)}


def test_steps_after_the_checkpoint_are_lost_with_the_process() -> None:
    # Step 1 was taken twice: once before the kill, once by the next session under the same lease.
    assert read("load 0\nrun 1\n1 0 0 0 7\n1 0 1 0 8\nrestore 0 1\nrun 1\n1 0 1 0 8\n") == {1: (7, 8)}


def test_a_phase_goes_on_under_a_new_lease() -> None:
    text = "load 2\nrun 1\n1 2 5 0 7\n1 2 6 0 8\nrestore 2 6\nrun 9\n9 2 6 0 8\n9 2 7 0 4\n"
    assert read(text) == {1: (7, 8), 9: (7, 8, 4)}


def test_a_resumed_phase_that_is_drained_at_once_has_what_was_saved() -> None:
    assert read("load 2\nrun 1\n1 2 5 0 7\nrestore 2 6\nrun 9\n") == {1: (7,), 9: (7,)}


def test_work_that_waited_for_the_network_over_a_restart_is_whole() -> None:
    assert read("load 2\nrun 1\n1 2 5 0 7\nrestore 2 6\nload 3\n") == {1: (7,)}


def test_training_a_restored_step_again_without_going_back_shows() -> None:
    assert read("load 2\nrun 1\n1 2 5 0 7\nrestore 2 6\nrun 1\n1 2 5 0 7\n") == {1: (7, 7)}


def test_weights_of_another_generation_have_none_of_the_steps() -> None:
    assert read("load 2\nrun 1\n1 2 5 0 7\nrestore 1 4\nrun 3\n3 2 5 0 7\n") == {1: (7,), 3: (7,)}


@pytest.mark.parametrize("line", ["", "load", "restore 1", "1 0 0", "5 0 0 0 7", "1 0 0 0 x", "\0\0"])
def test_what_is_no_line_of_a_log_is_named(line: str) -> None:
    with pytest.raises(IntegrityError, match=r"windows-0\.log, line 3"):
        trained_windows(["load 0", "run 1", line], "windows-0.log")


def test_an_empty_log_says_nothing() -> None:
    assert trained_windows([], "log") == {}
    assert trained_windows(["load 0", "run 1"], "log") == {Token(1): ()}


def test_a_phase_ahead_begins_with_nothing_and_keeps_what_it_trained_when_it_is_moved() -> None:
    text = "load 0\nrun 1\n1 0 0 0 7\nahead 2\n2 0 1 0 8\nmove 1\nrun 2\n2 1 2 0 9\nahead 3\n3 1 3 0 4\n"
    assert read(text) == {1: (7,), 2: (8, 9), 3: (4,)}


def test_steps_after_a_checkpoint_of_a_moved_phase_are_lost_with_the_process() -> None:
    text = "load 0\nrun 1\n1 0 0 0 7\nahead 2\n2 0 1 0 8\nmove 1\nrun 2\n2 1 2 0 9\n2 1 3 0 5\nrestore 1 3\nrun 2\n2 1 3 0 5\n"
    assert read(text) == {1: (7,), 2: (8, 9, 5)}


def test_a_phase_ahead_that_is_lost_leaves_nothing_to_the_next_one() -> None:
    assert read("load 0\nrun 1\n1 0 0 0 7\nahead 2\n2 0 1 0 8\nload 1\nrun 3\n3 1 1 0 9\n") == {
        1: (7,),
        2: (8,),
        3: (9,),
    }


def test_a_full_disk_is_told_with_the_file(tmp_path: Path) -> None:
    window_log_path(tmp_path / "windows", 0).symlink_to("/dev/full")
    with pytest.raises(EnvironmentFault, match=r"windows-0\S* failed: the disk is full"):
        WindowLog(tmp_path / "windows", 0).loaded(Position(None, 0, "fresh"))
