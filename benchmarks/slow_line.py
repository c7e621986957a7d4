"""A line with a long way to go: a TCP proxy on loopback that hands everything on some time later, in both directions."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Self

HOST = "127.0.0.1"
CHUNK = 1 << 16


class SlowLine:
    """Leads to a port of this machine; leaving the `with` block ends it.

    Args:
        target: where it leads.
        delay_s: from one end to the other.
    """

    def __init__(self, target: int, delay_s: float) -> None:
        self._target = target
        self._delay_s = delay_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="slow-line", daemon=True)
        self._server: asyncio.Server | None = None
        self._calls: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """Where it is entered."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._accepted, HOST, 0), self._loop
        ).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(HOST, self._target)
        try:
            await asyncio.gather(self._carry(reader, far_writer), self._carry(far_reader, writer))
        finally:
            for end in (writer, far_writer):
                end.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def arrive() -> None:
            while True:
                due, data = await on_the_way.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                if not data:
                    break
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()

        arriving = asyncio.create_task(arrive())
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(CHUNK):
                on_the_way.put_nowait((loop.time() + self._delay_s, data))
        on_the_way.put_nowait((loop.time() + self._delay_s, b""))
        with contextlib.suppress(ConnectionError):
            await arriving
