"""What stands between sites and the object store: a line that a test can spoil, and that sees what comes."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from urllib.parse import quote

import httpx
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from tests.http_serving import Request as Received
from tests.http_serving import Spoiled, serving

from crosstrain.domain.ids import Digest
from crosstrain.domain.parts import PartsLeft
from crosstrain.storage.s3_object_store import S3ObjectStore

KEPT_BACK = frozenset({"connection", "content-length", "date", "expect", "server", "transfer-encoding"})
"""Headers that are each connection's own."""


class Front:
    """Passes requests on to the store, whole.

    Attributes:
        line: sees them first.
        url: its address.
        known: addresses were signed for it, and the store is to hear the name by which it was called.
    """

    def __init__(self, store: str) -> None:
        # No connection outlives its request: nobody would close it.
        self._store = httpx.AsyncClient(base_url=store, limits=httpx.Limits(max_keepalive_connections=0))
        self.line = Spoiled(self)
        self.url, self.known = "", False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        incoming = Request(scope, receive)
        body = await incoming.body()
        path = f"{scope['raw_path'].decode()}?{incoming.url.query}"
        passed = _passed(incoming.headers)
        if not self.known:
            del passed["host"]
        found = await self._store.request(incoming.method, path, content=body, headers=passed)
        headers = _passed(found.headers)
        if incoming.method == "HEAD":
            headers["content-length"] = found.headers["content-length"]
        await Response(found.content, found.status_code, headers)(scope, receive, send)


def _passed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in KEPT_BACK}


def is_signed(request: Received, secret: str) -> bool:
    """Whether the signature in the query is that of the request, as the service reckons it from what arrived.

    https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html
    """
    pairs = sorted(pair for pair in request.query.split("&") if not pair.startswith("X-Amz-Signature="))
    query = httpx.QueryParams(request.query)
    assert query["X-Amz-SignedHeaders"] == "host"
    path = quote(request.path, safe="/-_.~")
    lines = (request.method, path, "&".join(pairs), f"host:{request.headers['host']}\n", "host", "UNSIGNED-PAYLOAD")
    scope = query["X-Amz-Credential"].partition("/")[2]
    text = "\n".join(("AWS4-HMAC-SHA256", query["X-Amz-Date"], scope, sha256("\n".join(lines).encode()).hexdigest()))
    key = f"AWS4{secret}".encode()
    for word in (*scope.split("/"), text):
        key = hmac.digest(key, word.encode(), "sha256")
    return key.hex() == query["X-Amz-Signature"]


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
