"""The short way for control requests: path number and body are decoded once, by pydantic, and the reply is encoded once.

FastAPI's own way costs three times as much as the heartbeat that it serves. It stays the one that makes the OpenAPI document
and answers everything that does not fit, so that no problem document is written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from inspect import iscoroutinefunction
from typing import Any, get_type_hints

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool

LONGEST_NUMBER = 15
"""Digits of the numbers that are surely below 2^53."""

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class ControlRoute(APIRoute):
    """A route of (path number, message) -> message; routes of another shape are FastAPI's as ever."""

    def get_route_handler(self) -> Handler:
        careful = super().get_route_handler()
        endpoint = self.endpoint
        hints = get_type_hints(endpoint)
        kinds = [hints[name] for name in hints if name != "return"]
        if len(kinds) != 2 or kinds[0] is not int or not issubclass(kinds[1], BaseModel):
            return careful
        name, message, is_async = next(iter(hints)), kinds[1], iscoroutinefunction(endpoint)

        async def handle(request: Request) -> Response:
            number = request.path_params[name]
            if request.headers.get("content-type") != "application/json" or not _is_plain(number):
                return await careful(request)
            try:
                decoded = message.model_validate_json(await request.body())
            except ValidationError:
                return await careful(request)
            if is_async:
                reply = await endpoint(int(number), decoded)
            else:
                reply = await run_in_threadpool(endpoint, int(number), decoded)
            return Response(reply.model_dump_json(), media_type="application/json")

        return handle


def _is_plain(number: str) -> bool:
    return number.isascii() and number.isdecimal() and len(number) <= LONGEST_NUMBER
