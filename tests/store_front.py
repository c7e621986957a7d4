"""What stands between sites and the object store: a line that a test can spoil, and that sees what comes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from tests.http_serving import Spoiled, serving

from crosstrain.domain.ids import Digest
from crosstrain.domain.parts import PartsLeft
from crosstrain.storage.s3_object_store import S3ObjectStore

PASSED = ("content-range", "content-length", "content-type")


class Front:
    """Passes requests on to the store, whole.

    Attributes:
        line: sees them first.
        url: its address.
    """

    def __init__(self, store: str) -> None:
        self._store = httpx.AsyncClient(base_url=store)
        self.line = Spoiled(self)
        self.url = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        incoming = Request(scope, receive)
        body = await incoming.body()
        ranged = {"range": incoming.headers["range"]} if "range" in incoming.headers else {}
        path = f"{scope['raw_path'].decode()}?{incoming.url.query}"
        found = await self._store.request(incoming.method, path, content=body, headers=ranged)
        headers = {name: found.headers[name] for name in PASSED if name in found.headers}
        await Response(found.content, found.status_code, headers)(scope, receive, send)


class Fronted(S3ObjectStore):
    """A store whose addresses lead to the front."""

    front = ("", "")

    def address(self, digest: Digest) -> str | None:
        found = super().address(digest)
        return found and found.replace(*self.front)

    def parts_left(self, digest: Digest, total: int) -> PartsLeft | None:
        left = super().parts_left(digest, total)
        if left is None:
            return None
        return PartsLeft(
            left.received, tuple(part._replace(address=part.address.replace(*self.front)) for part in left.missing)
        )


@contextmanager
def fronting(store: str) -> Iterator[Front]:
    """Serves a front of the store."""
    front = Front(store)
    with serving(front.line) as front.url:
        yield front
