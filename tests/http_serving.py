"""The real app behind the real server on loopback, and what can go wrong between it and its clients."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crosstrain.coordinator.http_server import HttpServer
from crosstrain.wire.listening import listen


@contextmanager
def serving(app: ASGIApp) -> Iterator[str]:
    """Serves an app from a thread; its address."""
    listener = listen("127.0.0.1", 0)
    server = HttpServer(app)
    thread = threading.Thread(target=server.run, args=(listener, ()), name="server")
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.stop()
        thread.join()


@dataclass
class Request:
    """What arrived: method, path, query, headers in lower case, and the bytes of the body that were let through."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: int = 0


Answer = Response | None


@dataclass
class Spoiled:
    """An app that a test can spoil.

    Attributes:
        requests: all that came.
        instead: may answer in the app's place.
        cut_answer: after how many bytes of its body the answer to a request is cut; None leaves it whole.
        cut_request: likewise the body of a request.
        sent: bytes of bodies that went out, of blobs.
    """

    app: ASGIApp
    requests: list[Request] = field(default_factory=list)
    instead: Callable[[Request], Answer] = lambda _request: None
    cut_answer: Callable[[Request], int | None] = lambda _request: None
    cut_request: Callable[[Request], int | None] = lambda _request: None
    sent: int = 0

    def reset(self) -> None:
        self.requests.clear()
        self.sent = 0
        self.instead = self.cut_answer = self.cut_request = lambda _request: None

    def of(self, method: str) -> list[Request]:
        """The requests for blobs themselves."""
        return [found for found in self.requests if found.method == method and not found.path.endswith("/received")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = _request(scope)
        self.requests.append(request)
        if (answer := self.instead(request)) is not None:
            await answer(scope, receive, send)
            return
        # Without zero copy, so that the bytes pass here.
        await self.app({**scope, "extensions": {}}, self._receive(request, receive), self._send(request, send))

    def _receive(self, request: Request, receive: Receive) -> Receive:
        left = self.cut_request(request)

        async def through() -> Message:
            nonlocal left
            message = await receive()
            if left is None or message["type"] != "http.request":
                request.body += len(message.get("body", b""))
                return message
            if left <= 0:
                return {"type": "http.disconnect"}
            body = message["body"][:left]
            left -= len(body)
            request.body += len(body)
            return {"type": "http.request", "body": body, "more_body": message["more_body"] or left <= 0}

        return through

    def _send(self, request: Request, send: Send) -> Callable[[Message], Awaitable[None]]:
        left = self.cut_answer(request)

        async def through(message: Message) -> None:
            nonlocal left
            body = message.get("body", b"")
            if left is not None and body:
                body = body[:left]
                message = {**message, "body": body, "more_body": True}
            if request.path.count("/") == 3:
                self.sent += len(body)
            await send(message)
            if left is not None and message["type"] == "http.response.body":
                left -= len(body)
                if left <= 0:
                    raise ConnectionResetError("cut by the test")

        return through


def _request(scope: Scope) -> Request:
    headers: list[tuple[bytes, Any]] = scope["headers"]
    return Request(
        scope["method"],
        scope["path"],
        scope["query_string"].decode(),
        {name.decode(): value.decode() for name, value in headers},
    )
