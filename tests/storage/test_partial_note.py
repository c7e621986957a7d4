"""The note beside a file that comes in pieces."""

from __future__ import annotations

from pathlib import Path

import pytest

from crosstrain.domain.byte_ranges import ByteRanges
from crosstrain.domain.ids import Digest
from crosstrain.partial_note import READ_BYTES, Note, Record, read_note

DIGEST = Digest("a" * 64)
SCATTERED = Record(DIGEST, 1 << 30, ByteRanges(tuple((4 * number, 4 * number + 1) for number in range(2000))))


def test_what_one_writes_all_read_also_after_a_longer_line_and_from_a_note_that_was_read_before(fast_tmp: Path) -> None:
    mine, other = Note(fast_tmp / "note"), Note(fast_tmp / "note")
    assert mine.read() is None
    one, two = Record(DIGEST, 10), Record(DIGEST, 10, ByteRanges(((0, 3),)))
    for record in (one, SCATTERED, two, one):
        mine.write(record)
        assert other.read() == mine.read() == read_note(fast_tmp / "note") == record
        other.write(two)
        assert mine.read() == two
    mine.close()
    other.close()
    assert (fast_tmp / "note").stat().st_size > READ_BYTES  # of the longer line, which was read in several pieces


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"{",
        b"[]",
        b'{"digest": "a"}',
        b'{"digest": "a", "total": 3, "identity": "i", "held": [[0, 4]]}',
        b'{"digest": "a", "total": 3, "identity": "i", "held": [[2, 1]]}',
    ],
)
def test_a_note_that_says_nothing_sound_is_none(fast_tmp: Path, line: bytes) -> None:
    path = fast_tmp / "note"
    path.write_bytes(line)
    note = Note(path)
    assert note.read() is None
    assert read_note(path) is None
    note.close()


def test_no_note_is_none(fast_tmp: Path) -> None:
    assert read_note(fast_tmp / "note") is None
