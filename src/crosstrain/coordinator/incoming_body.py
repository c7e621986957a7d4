"""The body of a large request, from its socket to the file where it belongs.

aiohttp's way to an application makes an object of every piece, copies it in the parser, and wakes the event loop and a thread
for it. Here the loop only waits until there is something worth taking, and a thread moves all that is there. The rest waits in
the kernel, where TCP holds the sender back: memory does not grow with the number of uploads, and a slow one keeps no thread.
"""

from __future__ import annotations

import asyncio
import socket
from functools import partial

from aiohttp import web
from starlette.requests import ClientDisconnect

from crosstrain.coordinator.blobs import OnThread
from crosstrain.domain.timeouts import MORE_BODY_S
from crosstrain.pieces import let_wait, wait_no_more
from crosstrain.storage.object_store import Part

LEAST_BYTES = 1 << 20
"""Bodies below it are with aiohttp by the time that anybody asks for them."""
TURN_BYTES = 16 << 20
"""Taken at a time; then it is the turn of who waits for a thread."""
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

    async def pour(self, part: Part, on_thread: OnThread) -> None:
        """Gives the body to `part`, in order and to its end, unless that wants no more.

        Raises:
            ClientDisconnect: the connection broke, and `part` has all that had come; or the server stops.
        """
        early = self._early()
        try:
            if early:
                await on_thread(partial(self._give, early, part))
            if self._wanted and self._left:
                await self._receive(part, on_thread)
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

    async def _receive(self, part: Part, on_thread: OnThread) -> None:
        transport, content = self._request.transport, self._request.content
        if transport is None or transport.is_closing() or content.exception() is not None:
            raise ClientDisconnect
        over = asyncio.ensure_future(content.wait_eof())  # raises when the connection is lost or the server stops
        # Under a descriptor of its own, because the event loop keeps that of the transport to itself.
        with transport.get_extra_info("socket").dup() as connection:
            try:
                while self._wanted and self._left:
                    await self._something(connection, over)
                    await on_thread(partial(self._take_in, connection, part))
                    if self._broken:
                        raise ClientDisconnect
            finally:
                over.cancel()
                wait_no_more(connection)

    async def _something(self, connection: socket.socket, over: asyncio.Future[None]) -> None:
        """Waits until there is something worth taking, or the end."""
        let_wait(connection, self._left)
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

    def _give(self, early: bytes, part: Part) -> None:
        self._wanted = part.write(early)

    def _take_in(self, connection: socket.socket, part: Part) -> None:
        """Takes what is there, at most a turn of it."""
        until = self._taken + min(self._left, TURN_BYTES)
        while self._taken < until:
            let_wait(connection, self._left)
            moved = part.receive(connection, until - self._taken, MORE_BODY_S)
            if moved is None:
                self._wanted = False
                return
            self._taken += moved.received
            self._broken = moved.ended
            if moved.ended or moved.dry:
                return

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
