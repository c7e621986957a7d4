"""A file that comes in pieces: also when a writer is stopped while it holds the lock, and from a connection."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.connections import bringing, rest_of, take

from crosstrain.batch.command import Child, spawn
from crosstrain.clock import SystemClock, pause
from crosstrain.domain.byte_ranges import ByteRanges
from crosstrain.domain.ids import Digest
from crosstrain.partial_file import PartialFile, look, noted_bytes, paths

DIGEST = Digest("a" * 64)
HALF = 5000
TOTAL = 2 * HALF
PATIENCE_S = 20.0
WRITES = """
from pathlib import Path
from crosstrain.partial_file import PartialFile
with PartialFile(Path({base!r}), "a" * 64, {total}) as file:
    for offset in range({total} - {piece}, 0, -{piece}):
        file.write(offset, b"x" * {piece})
"""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that holds the lock for a moment is taken for one that does not go on."""
    monkeypatch.setattr("crosstrain.domain.timeouts.LOCK_STUCK_S", 0.1)


@contextmanager
def held_elsewhere(base: Path) -> Iterator[None]:
    """The lock as another process holds it."""
    handle = os.open(paths(base)[0], os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(handle)


def test_next_writer_goes_on_with_what_is_noted_and_the_stopped_one_changes_nothing(fast_tmp: Path) -> None:
    base = fast_tmp / "blob"
    with PartialFile(base, DIGEST, TOTAL) as stopped:
        stopped.write(0, b"a" * HALF)
        with held_elsewhere(base):
            assert stopped.record is None
            assert stopped.write(HALF, b"x" * HALF) is None
            record = look(base)
            assert record is not None and record.held == ByteRanges(((0, HALF),))
            with PartialFile(base, DIGEST, TOTAL) as after:
                assert after.record == record
                found = after.write(HALF, b"b" * HALF)
                assert found is not None and found.complete
        assert stopped.write(HALF, b"x" * HALF) is None
    assert paths(base)[0].read_bytes() == b"a" * HALF + b"b" * HALF
    assert look(base) == found


def test_writer_that_is_stopped_in_the_middle_of_a_write_and_continued_notes_nothing_of_it(fast_tmp: Path) -> None:
    base, total, piece = fast_tmp / "blob", 256 << 20, 1 << 20
    code = WRITES.format(base=str(base), total=total, piece=piece)
    child = spawn([sys.executable, "-c", code], log=fast_tmp / "log")
    try:
        stop_in_a_write(child, base)
        with PartialFile(base, DIGEST, total) as file:
            before = file.record
            assert before is not None
            after = file.write(0, b"y" * piece)
        child.signal(signal.SIGCONT)
        assert child.wait(PATIENCE_S) == 0, (fast_tmp / "log").read_text()
    finally:
        child.kill_group()
    assert after is not None and look(base) == after
    assert after.held == before.held.add(0, piece)
    data = paths(base)[0].read_bytes()
    assert all(data[start:stop].count(b"x") == stop - start for start, stop in before.held.spans)


def stop_in_a_write(child: Child, base: Path) -> None:
    """Stops the writer until it holds the lock then."""
    clock = SystemClock()
    deadline = clock.perf() + PATIENCE_S
    while True:
        assert clock.perf() < deadline and child.poll() is None
        if look(base) is None:
            pause(0.001)
            continue
        child.signal(signal.SIGSTOP)
        handle = os.open(paths(base)[0], os.O_RDWR)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        finally:
            os.close(handle)
        child.signal(signal.SIGCONT)


def test_received_bytes_are_noted_and_those_that_are_there_stay(fast_tmp: Path) -> None:
    base = fast_tmp / "blob"
    with PartialFile(base, DIGEST, TOTAL) as file, bringing(b"x" * 8000) as connection:
        file.write(2000, b"a" * 1000)
        file.write(4000, b"b" * 500)
        offset = 0
        while offset < 8000:
            record, moved = file.receive(connection, offset, 8000 - offset)
            assert not moved.file_error
            offset += moved.received
            assert record is not None and record == look(base)
            assert record.held.prefix >= offset
    assert record is not None and record.held == ByteRanges(((0, 8000),))
    parts = b"x" * 2000, b"a" * 1000, b"x" * 1000, b"b" * 500, b"x" * 3500, bytes(TOTAL - 8000)
    assert paths(base)[0].read_bytes() == b"".join(parts)


def test_received_bytes_are_noted_when_there_are_many(fast_tmp: Path) -> None:
    base, total = fast_tmp / "blob", 3 << 20
    with PartialFile(base, DIGEST, total) as file, bringing(b"x" * total) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, noted_bytes(total) + 1)
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        assert poll.poll(1000 * PATIENCE_S)
        record, moved = file.receive(connection, 0, total)
        assert moved.received == noted_bytes(total) < total
        assert record is not None and record.held == ByteRanges(((0, moved.received),))


def test_received_bytes_before_the_end_of_a_connection_are_noted(fast_tmp: Path) -> None:
    base = fast_tmp / "blob"
    with PartialFile(base, DIGEST, TOTAL) as file, bringing(b"x" * HALF, ends=True) as connection:
        taken = take(connection, TOTAL, lambda done: file.receive(connection, 100 + done, TOTAL - 100 - done)[1])
        record = file.record
        assert (taken.received, taken.ended) == (HALF, True)
        assert record == look(base)
        assert record is not None and record.held == ByteRanges(((100, 100 + HALF),))


def test_bytes_whose_note_is_refused_are_off_the_connection_and_not_held(
    fast_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = fast_tmp / "blob"

    def refuse(*_: object) -> int:
        raise OSError(errno.EDQUOT, "no quota")

    with PartialFile(base, DIGEST, TOTAL) as file, bringing(b"x" * HALF, ends=True) as connection:
        before = file.record
        with monkeypatch.context() as patch:
            patch.setattr("crosstrain.partial_note.os.pwrite", refuse)
            moved = take(connection, HALF, lambda done: file.receive(connection, done, HALF - done)[1])
        assert moved.file_error == errno.EDQUOT
        assert moved.received > 0
        assert file.record == before


@pytest.mark.parametrize("end", ["discarded", "finished", "held elsewhere"])
def test_nothing_is_received_for_a_file_that_is_gone(fast_tmp: Path, end: str) -> None:
    base = fast_tmp / "blob"
    with PartialFile(base, DIGEST, TOTAL) as file, bringing(b"x" * HALF, ends=True) as connection:
        file.write(0, b"a" * TOTAL)
        if end == "held elsewhere":
            with held_elsewhere(base):
                record, moved = file.receive(connection, 0, HALF)
        else:
            with file.locked():
                if end == "discarded":
                    file.discard()
                else:
                    file.publish(fast_tmp / "whole")
            record, moved = file.receive(connection, 0, HALF)
        assert (record, moved.received, moved.ended) == (None, 0, False)
        assert rest_of(connection) == b"x" * HALF
