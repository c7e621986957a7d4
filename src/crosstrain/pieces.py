"""Moving bytes into a file in pieces that suit the page cache and the processor's caches.

The page cache takes a large write into pages as large, and those are what a virtual machine gives back to its host when they are
free. To get them again costs 2 s for a GiB, where the same GiB in pieces of 64 KiB is written in 0.3 s; a machine that gives
nothing back needs 0.06 s more for the small pieces (docs/measurements.md). A call of the system for each would let go of the
interpreter each time, which costs more than it saves where many threads want it: so the loop is in C (pieces.c), and without a
compiler the pieces are larger.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
import threading
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

PIECE_BYTES = 1 << 16
LARGE_BYTES = 1 << 20
"""Received at a time without a compiler: each system call lets go of the interpreter."""
WRITE_BYTES = 1 << 18
"""Written at a time without a compiler: between what that costs and what large writes cost."""
WORTH_BYTES = 1 << 17
"""Of a connection: worth waking for, if more are still to come."""
WORTH_SHARE = 8
"""But of a connection's buffer only that part: TCP widens the window of a long line as long as bytes are taken well before it is
full. Waiting for 128 KiB where the window had 64 left uploads at a sixth of the line's rate."""


def write_at(handle: int, data: bytes | memoryview, offset: int) -> int:
    """Writes bytes to a file descriptor from `offset` on, as `os.pwrite` does.

    Returns:
        How many were written: fewer than all where there is no compiler, and where the system refused the rest; then it says why
        when that is tried.

    Raises:
        OSError: none could be written.
    """
    library = _compiled()
    if library is None:
        return os.pwrite(handle, memoryview(data)[:WRITE_BYTES], offset)
    address = np.frombuffer(data, np.uint8).ctypes.data
    count = int(library.crosstrain_write(handle, address, len(data), offset, PIECE_BYTES))
    if count < 0:
        raise system_error(-count)
    return count


@dataclass(frozen=True, slots=True)
class Moved:
    """What came of moving bytes from a connection to a file.

    Attributes:
        received: bytes that were taken off the connection.
        written: of them, from the first one on, in the file.
        dry: all that had come is taken.
        ended: nothing more will come: the other end is done, or gone.
        connection_error, file_error: numbers of errors, 0 for none. The bytes that a file refused are lost.
    """

    received: int = 0
    written: int = 0
    dry: bool = False
    ended: bool = False
    connection_error: int = 0
    file_error: int = 0


def receive_at(connection: socket.socket, handle: int | None, offset: int, count: int, wait_s: float = 0.0) -> Moved:
    """Moves what comes on a connection into a file from `offset` on: 64 KiB at a time, which stay in the processor's cache between
    the two copies.

    Args:
        connection: over plain TCP, and without a timeout of its own, for which Python would wait.
        handle: of the file; None drops the bytes.
        count: most bytes to move.
        wait_s: how long more is waited for in all, where a quick line brings it at once; for as much as `let_wait` said.
    """
    library = _compiled()
    if library is None:
        return _receive(connection, handle, offset, count, wait_s)
    moved, file = _Moved(), -1 if handle is None else handle
    buffer, patience_ns = _buffers.address, round(1e9 * wait_s)
    library.crosstrain_receive(
        connection.fileno(), file, offset, count, buffer, PIECE_BYTES, patience_ns, ctypes.byref(moved)
    )
    errors = (moved.connection_error, moved.file_error)
    return Moved(moved.received, moved.written, bool(moved.dry), bool(moved.ended), *errors)


def system_error(number: int) -> OSError:
    """The exception of an error number, of the class that Python has for it."""
    return OSError(number, os.strerror(number))


def let_wait(connection: socket.socket, left: int) -> None:
    """Has the system wake nobody before there is something worth taking of the bytes that are left."""
    buffer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, min(WORTH_BYTES, buffer // WORTH_SHARE, left))


def wait_no_more(connection: socket.socket) -> None:
    """Has the system wake whoever waits for the first byte again."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


def _receive(connection: socket.socket, handle: int | None, offset: int, count: int, wait_s: float) -> Moved:
    """As crosstrain_receive of pieces.c, with large writes, and one wait at most."""
    received = written = 0
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    while received < count:
        try:
            filled = connection.recv_into(_buffers.large[: count - received], 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            if wait_s and poll.poll(1000 * wait_s):
                wait_s = 0.0
                continue
            return Moved(received, written, dry=True)
        except OSError as broken:
            error = broken.errno or errno.EIO
            return Moved(received, written, dry=True, ended=True, connection_error=error)
        if not filled:
            return Moved(received, written, dry=True, ended=True)
        data, received = _buffers.large[:filled], received + filled
        while handle is not None and data:
            try:
                count_written = os.pwrite(handle, data, offset + written)
            except OSError as full:
                return Moved(received, written, file_error=full.errno or errno.EIO)
            if not count_written:
                return Moved(received, written, file_error=errno.EIO)
            written, data = written + count_written, data[count_written:]
    return Moved(received, written)


class _Moved(ctypes.Structure):
    """struct moved of pieces.c."""

    _fields_ = tuple(
        (name, ctypes.c_int64) for name in ("received", "written", "dry", "ended", "connection_error", "file_error")
    )


class _Buffers(threading.local):
    """For each thread, because making one costs as much as filling it."""

    def __init__(self) -> None:
        self._piece = bytearray(PIECE_BYTES)
        self.address = np.frombuffer(self._piece, np.uint8).ctypes.data

    @cached_property
    def large(self) -> memoryview:
        return memoryview(bytearray(LARGE_BYTES))


_buffers = _Buffers()


@cache
def _compiled() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(__file__.removesuffix("pieces.py") + "libpieces.so")
        write, receive = library.crosstrain_write, library.crosstrain_receive
    except (OSError, AttributeError):
        return None
    number, size, address = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p
    write.argtypes = [number, address, size, size, size]
    write.restype = size
    receive.argtypes = [number, number, size, size, address, size, size, address]
    receive.restype = None
    return library
