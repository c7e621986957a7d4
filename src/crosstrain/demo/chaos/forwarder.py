"""The network between sites and coordinator: TCP lines on loopback that can be cut.

Each site reaches the coordinator through a line of its own. A line passes bytes on, refuses and resets (`cut`), or takes
everything and passes nothing on (`swallow`). What a swallowing line holds arrives when it is whole again, which makes
requests that come late, after their sender gave up on them.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from enum import Enum, auto
from types import TracebackType

from crosstrain.wire.listening import listen

HOST = "127.0.0.1"
CHUNK = 1 << 16
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Weather(Enum):
    """What a line does with its bytes."""

    WHOLE = auto()
    CUT = auto()
    SWALLOWING = auto()


class Network:
    """One line for each name, all served by one thread; leaving the `with` block closes them.

    Args:
        target: the coordinator's port.
    """

    def __init__(self, names: Sequence[str], target: int) -> None:
        self._lines = {name: _Line(target) for name in names}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)

    def __enter__(self) -> Network:
        self._thread.start()
        for line in self._lines.values():
            asyncio.run_coroutine_threadsafe(line.open(), self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for line in self._lines.values():
            asyncio.run_coroutine_threadsafe(line.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def port(self, name: str) -> int:
        """Where the line of a site is entered."""
        return self._lines[name].port

    def cut(self, name: str) -> None:
        """Resets its connections; new ones are reset as soon as they are made."""
        self._call(lambda: self._lines[name].turn(Weather.CUT))

    def swallow(self, name: str) -> None:
        """From now on nothing arrives, and nobody is told."""
        self._call(lambda: self._lines[name].turn(Weather.SWALLOWING))

    def reset(self, name: str) -> None:
        """Resets the connections of this moment; the next ones pass."""
        self._call(self._lines[name].reset)

    def heal(self, name: str) -> None:
        """Makes the line whole; what it swallowed arrives."""
        self._call(lambda: self._lines[name].turn(Weather.WHOLE))

    def _call(self, action: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(action)


class _Line:
    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = listen(HOST, 0)
        self._weather = Weather.WHOLE
        self._passing = asyncio.Event()
        self._passing.set()
        self._ends: set[asyncio.StreamWriter] = set()
        self._calls: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = int(self._listener.getsockname()[1])

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accepted, sock=self._listener)

    async def close(self) -> None:
        if self._server:
            self._server.close()
        calls = tuple(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    def turn(self, weather: Weather) -> None:
        self._weather = weather
        if weather is Weather.CUT:
            self.reset()
        if weather is Weather.SWALLOWING:
            self._passing.clear()
        else:
            self._passing.set()

    def reset(self) -> None:
        for end in tuple(self._ends):
            _reset(end)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Tasks of our own, so that closing can wait for them.
        call = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        self._ends.add(writer)
        try:
            if self._weather is not Weather.CUT:
                await self._connect(reader, ends)
        except* OSError:
            pass  # one end is gone, so the other goes as well
        finally:
            self._ends.difference_update(ends)
            for end in ends:
                _reset(end)

    async def _connect(self, reader: asyncio.StreamReader, ends: list[asyncio.StreamWriter]) -> None:
        await self._passing.wait()
        far_reader, far_writer = await asyncio.open_connection(HOST, self._target)
        ends.append(far_writer)
        self._ends.add(far_writer)
        async with asyncio.TaskGroup() as both:
            both.create_task(self._pass(reader, far_writer))
            both.create_task(self._pass(far_reader, ends[0]))
        for end in ends:
            end.close()
            await end.wait_closed()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            await self._passing.wait()
            writer.write(data)
            await writer.drain()
        await self._passing.wait()
        if writer.can_write_eof():
            writer.write_eof()


def _reset(end: asyncio.StreamWriter) -> None:
    """Closes with a reset instead of a farewell, whatever is still unsent."""
    connection: socket.socket = end.get_extra_info("socket")
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    end.transport.abort()
