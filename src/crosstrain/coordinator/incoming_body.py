"""The body of a large request, from its socket to a function by the one buffer of a thread.

aiohttp's way to an application makes an object of every piece, copies it in the parser, and wakes the event loop and a thread
for it. Here the loop only waits until there is something worth taking, and a thread takes all that is there. The rest waits in
the kernel, where TCP holds the sender back: memory does not grow with the number of uploads, and a slow one keeps no thread.
"""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from functools import partial

from aiohttp import web
from starlette.requests import ClientDisconnect

from crosstrain.coordinator.blobs import OnThread, Take
from crosstrain.domain.timeouts import MORE_BODY_S

LEAST_BYTES = 1 << 20
"""Bodies below it are with aiohttp by the time that anybody asks for them."""
BUFFER_BYTES = 1 << 20
"""Of each thread: what is just received is written and hashed while the processor's caches hold it."""
TURN_BYTES = 4 << 20
"""Taken at a time; then it is the turn of who waits for a thread."""
WORTH_BYTES = 1 << 17
"""Worth a thread's while, if more are still to come. So many may be lost with a coordinator that is killed, and are sent again."""
WORTH_SHARE = 8
"""But of a connection's buffer only that part: TCP widens the window of a long line as long as bytes are taken well before it is
full. Waiting for 128 KiB where the window had 64 left uploads at a sixth of the line's rate."""
_ZEROS = bytes(1 << 17)


class IncomingBody:
    """A body over plain TCP.

    Args:
        request: one whose body nobody has read from.
        length: of the body in bytes, as its header says.
    """

    def __init__(self, request: web.BaseRequest, length: int) -> None:
        self._request, self._length = request, length
        self._taken = 0
        self._wanted, self._broken = True, False

    async def pour(self, take: Take, on_thread: OnThread) -> None:
        """Gives the body to `take`, in order and to its end, unless that wants no more.

        Raises:
            ClientDisconnect: the connection broke, and `take` has all that had come; or the server stops.
        """
        early = self._early()
        try:
            if early:
                await on_thread(partial(self._give, memoryview(early), take))
            if self._wanted and self._left:
                await self._receive(take, on_thread)
        finally:
            self._hand_back()

    @property
    def _left(self) -> int:
        return self._length - self._request.content.total_bytes - self._taken

    def _early(self) -> bytes:
        """What aiohttp has of the body, and is kept from getting more."""
        pieces = []
        try:
            while piece := self._request.content.read_nowait():
                pieces.append(piece)
        except (ConnectionError, web.RequestPayloadError) as error:
            raise ClientDisconnect from error
        if (transport := self._request.transport) is not None:
            transport.pause_reading()
        return b"".join(pieces)

    async def _receive(self, take: Take, on_thread: OnThread) -> None:
        transport, content = self._request.transport, self._request.content
        if transport is None or transport.is_closing() or content.exception() is not None:
            raise ClientDisconnect
        over = asyncio.ensure_future(content.wait_eof())  # raises when the connection is lost or the server stops
        # Under a descriptor of its own, because the event loop keeps that of the transport to itself.
        with transport.get_extra_info("socket").dup() as connection:
            try:
                while self._wanted and self._left:
                    await self._something(connection, over)
                    await on_thread(partial(self._take_in, connection, take))
                    if self._broken:
                        raise ClientDisconnect
            finally:
                over.cancel()
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)

    async def _something(self, connection: socket.socket, over: asyncio.Future[None]) -> None:
        """Waits until there is something worth taking, or the end."""
        _let_wait(connection, self._left)
        loop = asyncio.get_running_loop()
        there = loop.create_future()

        def arrived() -> None:
            if not there.done():
                there.set_result(None)

        loop.add_reader(connection, arrived)
        try:
            await asyncio.wait({there, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.remove_reader(connection)
        if not there.done():
            raise ClientDisconnect from over.exception()

    # -- on a thread ----------------------------------------------------------------------------------------------------

    def _take_in(self, connection: socket.socket, take: Take) -> None:
        """Takes what is there, at most a turn of it."""
        buffer = _buffers.buffer
        until = self._taken + min(self._left, TURN_BYTES)
        filled = len(buffer)
        while self._wanted and self._taken < until and filled == len(buffer):
            filled = self._fill(connection, buffer[: until - self._taken])
            self._taken += filled
            if filled:
                self._give(buffer[:filled], take)

    def _fill(self, connection: socket.socket, buffer: memoryview) -> int:
        """Receives until the buffer is full or the socket empty; bytes."""
        filled = 0
        try:
            while filled < len(buffer) and not self._broken:
                try:
                    count = connection.recv_into(buffer[filled:])
                except BlockingIOError:
                    _let_wait(connection, self._left - filled)
                    if not _comes_soon(connection):
                        break
                else:
                    filled += count
                    self._broken = not count
        except OSError:
            self._broken = True
        return filled

    def _give(self, data: memoryview, take: Take) -> None:
        self._wanted = take(data)

    # -- the connection's next request ------------------------------------------------------------------------------------

    def _hand_back(self) -> None:
        """Lets aiohttp go on behind what was taken. Its parser only counts the bytes of a body: so it gets as many others."""
        content = self._request.content
        if self._broken or self._request.transport is None or content.exception() is not None:
            return
        while self._taken:
            fed = content.total_bytes
            self._request.protocol.data_received(_ZEROS[: self._taken])
            content.read_nowait()
            if content.total_bytes == fed:  # it parses nothing more, because the server stops
                content.feed_eof()
                return
            self._taken -= content.total_bytes - fed
        self._request.transport.resume_reading()


def _let_wait(connection: socket.socket, left: int) -> None:
    """Has the system wake nobody before there is something worth taking of the bytes that are left."""
    buffer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, min(WORTH_BYTES, buffer // WORTH_SHARE, left))


def _comes_soon(connection: socket.socket) -> bool:
    """Whether a quick line brings more at once. So a thread takes a MiB at a time; without that wait it was 300 KiB, and the loop was
    asked in between, at 0.1 ms of Python."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(1000 * MORE_BODY_S))


class _Buffers(threading.local):
    """One for each thread, because making one costs as much as filling it."""

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(BUFFER_BYTES))


_buffers = _Buffers()
