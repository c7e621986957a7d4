"""Bytes into a file in pieces, as `os.pwrite` and from a connection: compiled and not."""

from __future__ import annotations

import errno
import importlib
import os
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
from tests.connections import bringing, rest_of, take, tcp_pair

import crosstrain.pieces
from crosstrain.pieces import PIECE_BYTES, WRITE_BYTES, Moved, let_wait, wait_no_more
from crosstrain.storage.durable import write_all

WriteAt = Callable[[int, bytes | memoryview, int], int]
ReceiveAt = Callable[[socket.socket, int | None, int, int, float], Moved]
UNEVEN = 2 * PIECE_BYTES + 77
PATIENCE_S = 20.0


@pytest.fixture(params=["compiled", "not compiled"])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = importlib.reload(crosstrain.pieces)
    if request.param == "compiled":
        if module._compiled() is None:
            pytest.skip("the package was built without a C compiler")
    else:
        monkeypatch.setattr(module, "_compiled", lambda: None)
    return module


@pytest.fixture
def write_at(pieces: ModuleType) -> WriteAt:
    found: WriteAt = pieces.write_at
    return found


@pytest.fixture
def receive_at(pieces: ModuleType) -> ReceiveAt:
    found: ReceiveAt = pieces.receive_at
    return found


@pytest.fixture
def handle(fast_tmp: Path) -> Iterator[int]:
    with opened(fast_tmp / "file") as found:
        yield found


@contextmanager
def opened(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> Iterator[int]:
    found = os.open(path, flags)
    try:
        yield found
    finally:
        os.close(found)


def numbers(moved: Moved) -> tuple[int, int, int, int]:
    return moved.received, moved.written, moved.connection_error, moved.file_error


@pytest.mark.usefixtures("pieces")
def test_all_is_written_however_much_goes_at_a_time(handle: int) -> None:
    data = os.urandom(2 * WRITE_BYTES + 77)
    write_all(handle, memoryview(data), 3)
    assert os.pread(handle, 2 * len(data), 3) == data


@pytest.mark.parametrize("length", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, UNEVEN])
@pytest.mark.parametrize("offset", [0, 5, (1 << 32) + 3])
@pytest.mark.parametrize("kind", [bytes, memoryview, bytearray])
def test_bytes_are_where_they_belong(
    write_at: WriteAt, fast_tmp: Path, length: int, offset: int, kind: type[bytes]
) -> None:
    data = kind(bytes(number % 251 for number in range(length)))
    handle = os.open(fast_tmp / "file", os.O_RDWR | os.O_CREAT)
    try:
        assert write_at(handle, data, offset) == length
        assert os.pread(handle, length + 1, offset) == bytes(data)
        assert os.fstat(handle).st_size == (offset + length if length else 0)
    finally:
        os.close(handle)


def test_a_full_disk_is_told_when_nothing_fits_any_more(write_at: WriteAt, small_disk: Path) -> None:
    handle = os.open(small_disk / "file", os.O_RDWR | os.O_CREAT)
    ballast = os.open(small_disk / "ballast", os.O_RDWR | os.O_CREAT)
    try:
        room = os.fstatvfs(handle)
        os.posix_fallocate(ballast, 0, room.f_bavail * room.f_frsize - UNEVEN)
        count = write_at(handle, b"x" * (2 * UNEVEN), 0)
        assert 0 < count < 2 * UNEVEN
        assert os.pread(handle, 2 * UNEVEN, 0) == b"x" * count
        with pytest.raises(OSError, match="No space left") as caught:
            write_at(handle, b"x" * UNEVEN, count)
        assert caught.value.errno == errno.ENOSPC
    finally:
        os.close(ballast)
        os.close(handle)


def test_a_file_that_is_not_open_for_writing_is_refused(write_at: WriteAt, fast_tmp: Path) -> None:
    (fast_tmp / "file").write_bytes(b"as it was")
    handle = os.open(fast_tmp / "file", os.O_RDONLY)
    try:
        with pytest.raises(OSError) as caught:
            write_at(handle, b"x", 0)
        assert caught.value.errno == errno.EBADF
    finally:
        os.close(handle)
    assert (fast_tmp / "file").read_bytes() == b"as it was"


@pytest.mark.parametrize("length", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, UNEVEN, 20 * UNEVEN])
@pytest.mark.parametrize("offset", [0, 5, PIECE_BYTES, (1 << 32) + 3])
def test_received_bytes_are_where_they_belong(receive_at: ReceiveAt, handle: int, length: int, offset: int) -> None:
    data = bytes(number % 251 for number in range(length))
    with bringing(data) as connection:
        moved = take(connection, length, lambda done: receive_at(connection, handle, offset + done, length - done))
    assert numbers(moved) == (length, length, 0, 0)
    assert not moved.ended
    assert os.pread(handle, length + 1, offset) == data
    assert os.fstat(handle).st_size == (offset + length if length else 0)


@pytest.mark.parametrize("count", [1, 100, PIECE_BYTES, PIECE_BYTES + 1])
def test_what_comes_behind_the_count_stays_in_the_connection(receive_at: ReceiveAt, handle: int, count: int) -> None:
    with bringing(b"x" * count + b"rest", ends=True) as connection:
        moved = take(connection, count, lambda done: receive_at(connection, handle, done, count - done))
        assert rest_of(connection) == b"rest"
    assert numbers(moved) == (count, count, 0, 0)
    assert not moved.ended
    assert os.pread(handle, count + 1, 0) == b"x" * count


def test_connection_with_nothing_is_dry_and_not_at_its_end(receive_at: ReceiveAt, handle: int) -> None:
    with tcp_pair() as (one, other):
        moved = receive_at(other, handle, 0, 5000)
        assert (numbers(moved), moved.dry, moved.ended) == ((0, 0, 0, 0), True, False)
        one.sendall(b"x" * 1000)
        other.recv(1000, socket.MSG_PEEK | socket.MSG_WAITALL)
        moved = receive_at(other, handle, 0, 5000)
        assert (numbers(moved), moved.dry, moved.ended) == ((1000, 1000, 0, 0), True, False)
    assert os.pread(handle, 5000, 0) == b"x" * 1000


@pytest.mark.parametrize("length", [0, 1000, PIECE_BYTES, UNEVEN])
def test_connection_that_is_closed_ends_with_what_came(receive_at: ReceiveAt, handle: int, length: int) -> None:
    with bringing(b"x" * length, ends=True) as connection:
        whole = 2 * UNEVEN
        moved = take(connection, whole, lambda done: receive_at(connection, handle, 7 + done, whole - done))
    assert numbers(moved) == (length, length, 0, 0)
    assert moved.ended
    assert os.pread(handle, 2 * UNEVEN, 7) == b"x" * length


def test_connection_that_is_reset_ends_with_its_error(receive_at: ReceiveAt, handle: int) -> None:
    with tcp_pair() as (one, other):
        one.sendall(b"x" * 1000)
        other.recv(1000, socket.MSG_PEEK | socket.MSG_WAITALL)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        one.close()
        moved = take(other, 5000, lambda done: receive_at(other, handle, done, 5000 - done))
    assert (moved.ended, moved.connection_error, moved.file_error) == (True, errno.ECONNRESET, 0)
    assert moved.written == moved.received
    assert os.pread(handle, 5000, 0) == b"x" * moved.received


def test_bytes_without_a_file_are_dropped(receive_at: ReceiveAt) -> None:
    with bringing(b"x" * UNEVEN + b"rest", ends=True) as connection:
        moved = take(connection, UNEVEN, lambda done: receive_at(connection, None, 3 + done, UNEVEN - done))
        assert rest_of(connection) == b"rest"
    assert numbers(moved) == (UNEVEN, 0, 0, 0)


def test_received_bytes_that_a_full_disk_refuses_are_told_from_those_it_has(
    receive_at: ReceiveAt, small_disk: Path
) -> None:
    with opened(small_disk / "file") as handle, opened(small_disk / "ballast") as ballast:
        room = os.fstatvfs(handle)
        os.posix_fallocate(ballast, 0, room.f_bavail * room.f_frsize - UNEVEN)
        with bringing(b"x" * (4 * UNEVEN)) as connection:
            whole = 4 * UNEVEN
            moved = take(connection, whole, lambda done: receive_at(connection, handle, done, whole - done))
        assert moved.file_error == errno.ENOSPC
        assert 0 < moved.written < moved.received < 4 * UNEVEN
        assert os.pread(handle, 4 * UNEVEN, 0) == b"x" * moved.written


def test_received_bytes_for_a_file_that_is_not_open_for_writing_are_refused(
    receive_at: ReceiveAt, fast_tmp: Path
) -> None:
    (fast_tmp / "file").write_bytes(b"as it was")
    with opened(fast_tmp / "file", os.O_RDONLY) as handle, bringing(b"x") as connection:
        moved = take(connection, 1, lambda _: receive_at(connection, handle, 0, 1))
        assert numbers(moved) == (1, 0, 0, errno.EBADF)
    assert (fast_tmp / "file").read_bytes() == b"as it was"


@pytest.mark.parametrize("left", [5, 1 << 30])
def test_socket_is_reported_when_there_is_something_worth_taking(left: int) -> None:
    with tcp_pair() as (one, other):
        poll = select.poll()
        poll.register(other, select.POLLIN)
        let_wait(other, left)
        mark = other.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)
        assert 1 < mark <= left
        one.sendall(b"x")
        other.recv(1, socket.MSG_PEEK)  # it is there
        assert poll.poll(0) == []
        one.sendall(b"x" * (mark - 1))
        assert poll.poll(1000 * PATIENCE_S)


def test_socket_is_reported_with_its_first_byte_again(pieces: ModuleType, handle: int) -> None:
    with tcp_pair() as (one, other):
        poll = select.poll()
        poll.register(other, select.POLLIN)
        let_wait(other, 1 << 30)
        pieces.receive_at(other, handle, 0, 1 << 30)
        one.sendall(b"x")
        other.recv(1, socket.MSG_PEEK)
        assert poll.poll(0) == []
        wait_no_more(other)
        assert poll.poll(0)
