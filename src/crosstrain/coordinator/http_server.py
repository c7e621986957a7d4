"""The HTTP server: aiohttp's protocol in front of an ASGI application.

It is there for what other servers do not know: `http.response.zerocopysend`, by which a file goes to the socket without
passing through this process (https://asgi.readthedocs.io/en/latest/extensions.html#zero-copy-send), and bodies that come
in past its parser (incoming_body.py). What was compared: docs/decisions/0013-blob-plane.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Sequence
from functools import partial
from typing import Any, BinaryIO
from urllib.parse import unquote

from aiohttp import web
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Scope

from crosstrain.coordinator.blobs import POUR, ZERO_COPY, OnThread
from crosstrain.coordinator.incoming_body import LEAST_BYTES, IncomingBody
from crosstrain.domain.timeouts import KEEP_ALIVE_S, SHUTDOWN_S
from crosstrain.storage.object_store import Part
from crosstrain.wire.congestion import prefer_bbr

READ_BYTES = 1 << 18
"""Of a body that is coming in, buffered for each connection."""
SEND_BYTES = 2 << 20
"""Of a file in one go: the event loop does nothing else meanwhile, longest when the disk must be read."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class HttpServer:
    """Serves an application until it is stopped, by `stop` or by a signal."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._signal: signal.Signals | None = None

    def run(self, listener: socket.socket, signals: Sequence[signal.Signals] = SIGNALS) -> signal.Signals | None:
        """Serves on a listening socket.

        Args:
            signals: those that end it, none outside the main thread.

        Returns:
            The signal that ended it, if one did.
        """
        try:
            for number in signals:
                self._loop.add_signal_handler(number, self._end_by, number)
            self._loop.run_until_complete(self._serve(listener))
        finally:
            self._loop.close()
        return self._signal

    def stop(self) -> None:
        """Ends `run`, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._over.set)

    def _end_by(self, number: signal.Signals) -> None:
        self._signal = number
        self._over.set()

    async def _serve(self, listener: socket.socket) -> None:
        prefer_bbr(listener)
        web_server = web.Server(
            self._answer,
            access_log=None,
            keepalive_timeout=KEEP_ALIVE_S,
            read_bufsize=READ_BYTES,
            auto_decompress=False,
        )
        server = await self._loop.create_server(web_server, sock=listener, backlog=1024)
        await self._over.wait()
        server.close()
        web_server.pre_shutdown()
        await web_server.shutdown(SHUTDOWN_S)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        exchange = _Exchange(request)
        try:
            await self._app(exchange.scope(), exchange.receive, exchange.send)
        except (ClientDisconnect, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
        return exchange.response


class _Exchange:
    """One request and its response, in ASGI's words and in aiohttp's."""

    __slots__ = ("_begun", "_request", "_started", "response")

    def __init__(self, request: web.BaseRequest) -> None:
        self._request = request
        self._begun = False
        self._started: Message | None = None
        self.response: web.StreamResponse = web.Response(status=500)

    def scope(self) -> Scope:
        request = self._request
        path, _, query = request.raw_path.partition("?")
        if not path.startswith("/"):  # a whole address, as forward proxies get it
            path, query = request.rel_url.raw_path, request.rel_url.raw_query_string
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": unquote(path) if "%" in path else path,
            "raw_path": path.encode("ascii", "replace"),
            "query_string": query.encode("ascii", "replace"),
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.raw_headers],
            "client": request.transport and request.transport.get_extra_info("peername"),
            "server": None,
            "extensions": self._extensions(),
        }

    def _extensions(self) -> dict[str, Any]:
        length, transport = self._request.content_length or 0, self._request.transport
        if length < LEAST_BYTES or transport is None or transport.get_extra_info("sslcontext"):
            return {ZERO_COPY: {}}
        return {ZERO_COPY: {}, POUR: partial(self._pour, length)}

    async def _pour(self, length: int, part: Part, on_thread: OnThread) -> None:
        self._begin()
        await IncomingBody(self._request, length).pour(part, on_thread)

    async def receive(self) -> Message:
        content = self._request.content
        self._begin()
        try:
            data = await content.readany()
        except (ConnectionError, web.RequestPayloadError):
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": data, "more_body": not content.at_eof()}

    def _begin(self) -> None:
        """The body is asked for."""
        if self._begun:
            return
        self._begun = True
        if self._request.headers.get("Expect", "").lower() == "100-continue" and self._request.transport:
            self._request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def send(self, message: Message) -> None:
        match message["type"]:
            case "http.response.start":
                self._started = message
            case "http.response.body":
                await self._send_body(message.get("body", b""), message.get("more_body", False))
            case kind if kind == ZERO_COPY:
                await self._send_file(message["file"], message["offset"], message["count"])

    async def _send_body(self, data: bytes, more: bool) -> None:
        if self._started is not None and not more:
            self.response = web.Response(body=data, **self._head())
            return
        if self._started is not None:
            self.response = web.StreamResponse(**self._head())
            await self.response.prepare(self._request)
        await self.response.write(data)

    async def _send_file(self, file: BinaryIO, offset: int, count: int) -> None:
        self.response = web.StreamResponse(**self._head())
        await self.response.prepare(self._request)
        loop = asyncio.get_running_loop()
        while count:
            if (transport := self._request.transport) is None:
                raise ConnectionResetError("the client is gone")
            length = min(count, SEND_BYTES)
            os.posix_fadvise(file.fileno(), offset + length, SEND_BYTES, os.POSIX_FADV_WILLNEED)
            sent = await loop.sendfile(transport, file, offset, length)
            if not sent:
                raise ConnectionResetError("the file became shorter")
            offset, count = offset + sent, count - sent

    def _head(self) -> dict[str, Any]:
        """Status and headers of what is begun now."""
        assert self._started is not None
        started, self._started = self._started, None
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in started["headers"]]
        return {"status": started["status"], "headers": [*headers, ("Server", "crosstrain")]}
