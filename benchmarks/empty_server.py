"""A Starlette app whose only handler does nothing, served as `crosstrain coordinator` serves its own."""

from __future__ import annotations

import socket
import sys

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from crosstrain.coordinator.http_server import HttpServer


async def empty(_request: Request) -> Response:
    return Response(b"{}", media_type="application/json")


app = Starlette(routes=[Route("/v1/sessions/{session}/beat", empty, methods=["POST"])])

if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=1024) as listener:
        HttpServer(app).run(listener)
