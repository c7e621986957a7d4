"""Writes in pieces: as `os.pwrite`, compiled and not."""

from __future__ import annotations

import errno
import importlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import crosstrain.pieces
from crosstrain.pieces import PIECE_BYTES

WriteAt = Callable[[int, bytes | memoryview, int], int]
UNEVEN = 2 * PIECE_BYTES + 77


@pytest.fixture(params=["compiled", "not compiled"])
def write_at(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[WriteAt]:
    module = importlib.reload(crosstrain.pieces)
    if request.param == "compiled":
        if module._compiled() is None:
            pytest.skip("the package was built without a C compiler")
    else:
        monkeypatch.setattr(module, "_compiled", lambda: None)
    yield module.write_at


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
