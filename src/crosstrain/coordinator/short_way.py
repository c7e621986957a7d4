"""The short way for control requests: path number and body are decoded once, by pydantic, and the reply is encoded once.

FastAPI's own way costs several times as much as the heartbeat that it serves. It stays the one that makes the OpenAPI
document, and it answers everything that does not fit here, so that no problem document is written twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any, get_type_hints

from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crosstrain.errors import CrosstrainError

LONGEST_NUMBER = 15
"""Digits of the numbers that are surely below 2^53."""
LARGEST_BODY = 1 << 16
"""Bytes of a control request are a few hundred; what is longer takes the long way."""


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """A route of (path number, message) -> message."""

    call: Callable[..., Any]
    message: type[BaseModel]
    is_async: bool


class ShortWay:
    """An ASGI application in front of another.

    Args:
        app: takes what does not fit.
        routes: of `app`; those of one path number and one message are answered here.
        refusal: the response to an error for people.
    """

    def __init__(
        self, app: ASGIApp, routes: Sequence[BaseRoute], refusal: Callable[[CrosstrainError], Response]
    ) -> None:
        self._app = app
        self._refusal = refusal
        self._endpoints = dict(found for route in routes for found in _endpoint(route))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint, number = self._match(scope)
        if endpoint is None:
            await self._app(scope, receive, send)
            return
        heard: list[Message] = []
        body = b""
        while not heard or heard[-1].get("more_body"):
            heard.append(await receive())
            body += heard[-1].get("body", b"")
        try:
            message = endpoint.message.model_validate_json(body)
        except ValidationError:
            heard.reverse()

            async def again() -> Message:
                return heard.pop() if heard else await receive()

            await self._app(scope, again, send)
            return
        await (await self._answer(endpoint, number, message))(scope, receive, send)

    async def _answer(self, endpoint: _Endpoint, number: int, message: BaseModel) -> Response:
        try:
            if endpoint.is_async:
                reply = await endpoint.call(number, message)
            else:
                reply = await run_in_threadpool(endpoint.call, number, message)
        except CrosstrainError as error:
            return self._refusal(error)
        return Response(reply.model_dump_json(), media_type="application/json")

    def _match(self, scope: Scope) -> tuple[_Endpoint | None, int]:
        """The endpoint of a request that can take the short way, and its number."""
        if scope["type"] != "http" or scope["method"] != "POST":
            return None, 0
        parts = scope["path"].split("/")
        if len(parts) != 5 or not (parts[3].isascii() and parts[3].isdecimal() and len(parts[3]) <= LONGEST_NUMBER):
            return None, 0
        kind, length = b"", b""
        for name, value in scope["headers"]:
            if name == b"content-type":
                kind = value
            elif name == b"content-length":
                length = value
        if kind != b"application/json" or not length.isdigit() or int(length) > LARGEST_BODY:
            return None, 0
        return self._endpoints.get((parts[1], parts[2], parts[4])), int(parts[3])


def _endpoint(route: BaseRoute) -> Sequence[tuple[tuple[str, str, str], _Endpoint]]:
    """The route by its path without the number, if it is of that kind."""
    if not isinstance(route, APIRoute) or route.methods != {"POST"}:
        return ()
    path = re.fullmatch(r"/(\w+)/(\w+)/\{\w+\}/(\w+)", route.path)
    kinds = [kind for name, kind in get_type_hints(route.endpoint).items() if name != "return"]
    if path is None or len(kinds) != 2 or kinds[0] is not int or not issubclass(kinds[1], BaseModel):
        return ()
    return [((path[1], path[2], path[3]), _Endpoint(route.endpoint, kinds[1], iscoroutinefunction(route.endpoint)))]
