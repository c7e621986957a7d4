from __future__ import annotations

import pytest

from crosstrain.domain.room import Room, may_begin, round_bytes, round_inodes

NEED = round_bytes(600e6, "bf16", "bf16", 3)


def test_a_round_of_three_sites_needs_16_bytes_a_parameter_in_bf16() -> None:
    assert round(600e6 * 16) == NEED
    assert round_bytes(100, "fp32", "int8", 2) == 1420
    assert round_bytes(100, "fp32", "int8", 2, packed=True) == 2040
    assert round_inodes(3) > round_inodes(1) >= 3 + 3 + 1


@pytest.mark.parametrize("room", [Room(NEED, 100), Room(NEED, None), Room(None, None)])
def test_round_begins_where_there_is_room_or_nobody_says(room: Room) -> None:
    assert may_begin(room, NEED, 100)


def test_round_waits_for_space_and_says_how_much() -> None:
    assert may_begin(Room(2_000_000_000, None), NEED, 100).reason == (
        "waiting for space at the coordinator: the round needs 9.60 GB, 2.00 GB are free; free some, or set "
        "`coordinator.keep_generations`"
    )
    assert "up to 100 files, its file system takes 99 more" in may_begin(Room(NEED, 99), NEED, 100).reason
