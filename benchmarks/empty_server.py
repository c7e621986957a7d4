"""A Starlette app whose only handler does nothing, served as `crosstrain coordinator` serves its own."""

from __future__ import annotations

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


async def empty(_request: Request) -> Response:
    return Response(b"{}", media_type="application/json")


app = Starlette(routes=[Route("/v1/sessions/{session}/beat", empty, methods=["POST"])])

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_config=None, access_log=False, timeout_keep_alive=75)
