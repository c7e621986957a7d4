"""Blobs over HTTP: bytes leave by the server's zero copy send, and come in chunk by chunk, on threads of their own."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from typing import BinaryIO

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from crosstrain.coordinator.threads import Jobs, Threads
from crosstrain.domain.ids import Digest
from crosstrain.domain.timeouts import COMPLETE_WAIT_S
from crosstrain.errors import IntegrityError, Refused
from crosstrain.storage.object_store import ObjectStore, Part
from crosstrain.wire import messages

LARGEST_PART = 64 << 20
"""Bytes of one upload request that are taken."""
BATCH_BYTES = 1 << 18
"""Bytes that are handed to a thread at once; this much of every part that is coming in is in memory, and the socket's
buffers."""
THREADS = 8
"""For the disk: a slow one keeps blobs waiting, and not the control messages, which have threads of their own."""
COMPLETERS = 4
"""Uploads that are brought into a bucket or read back from it at once; others wait their turn."""
FETCHERS = 2
"""Blobs that are read from a bucket at once because somebody downloads them here."""
ZERO_COPY = "http.response.zerocopysend"
"""https://asgi.readthedocs.io/en/latest/extensions.html#zero-copy-send"""
POUR = "crosstrain.http.request.pour"
"""An extension of our own server: a request whose body is large has a function there (`Pour`) that gives it away past the
event loop."""
COPY_BYTES = 1 << 20

OnThread = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs a function on some thread, and is not over before that is, also if it is cancelled."""
Pour = Callable[[Part, OnThread], Awaitable[None]]
"""Gives a whole body to a part of an upload. Raises ClientDisconnect."""


class BlobResponse(Response):
    """A blob, or a range of it.

    Args:
        file: its bytes, closed afterwards; None where only the head is asked for.
        total: bytes of the blob.
        asked: first byte and the byte behind the last, None for all of it.
    """

    def __init__(self, digest: Digest, file: BinaryIO | None, total: int, asked: tuple[int, int] | None) -> None:
        start, stop = asked or (0, total)
        headers = {"accept-ranges": "bytes", "etag": f'"{digest}"', "content-length": str(stop - start)}
        if asked:
            headers["content-range"] = f"bytes {start}-{stop - 1}/{total}"
        super().__init__(None, 206 if asked else 200, headers, "application/octet-stream")
        self._file, self._start, self._count = file, start, stop - start

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        with self._file or nullcontext() as file:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if file is None or not self._count:
                await send({"type": "http.response.body", "body": b""})
                return
            if ZERO_COPY in scope.get("extensions", {}):
                await send({"type": ZERO_COPY, "file": file, "offset": self._start, "count": self._count})
                return
            file.seek(self._start)
            left = self._count
            while left:
                data = file.read(min(left, COPY_BYTES))
                left -= len(data)
                await send({"type": "http.response.body", "body": data, "more_body": left > 0})


def requested_range(header: str | None, total: int) -> tuple[int, int] | None:
    """(first byte, byte behind the last) of what is asked for; None without a header, or with one that has several ranges
    or another unit, which may be ignored (RFC 9110, section 14.2).

    Raises:
        Refused: 416, nothing of the range is there.
    """
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", (header or "").replace(" ", ""))
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        start, stop = max(0, total - int(match[2])), total
    else:
        start, stop = int(match[1]), min(total, int(match[2]) + 1) if match[2] else total
    if start >= stop:
        raise Refused(
            f"Expected a range within {total} bytes, found {header}.",
            "ask for the size with HEAD",
            kind="range-not-satisfiable",
            status=416,
        )
    return start, stop


def received(objects: ObjectStore, digest: Digest) -> messages.Received:
    """What is held of a blob."""
    whole = objects.has(digest)
    held = objects.held(digest)
    address = objects.address(digest) if whole else None
    return messages.Received(
        received=held.length, whole=whole, ranges=held.spans, address=address, direct_from=objects.direct_from
    )


class Blobs:
    """The blobs of an object store, for an event loop. Whatever asks the store does so on threads of its own: one that is slow,
    or a bucket that hangs, keeps no control message waiting. What may take minutes runs once for each blob, however many requests
    wait for it, and none of them keeps a thread."""

    def __init__(self, objects: Callable[[], ObjectStore]) -> None:
        self._objects = objects
        self._run = Threads(THREADS, "blobs").run
        self._completing = Jobs(COMPLETERS, "complete")
        self._fetching = Jobs(FETCHERS, "fetch")

    async def give(self, digest: Digest, method: str, range_header: str | None) -> BlobResponse:
        """A blob, or a range of it.

        Raises:
            Refused: 404, or 416.
        """
        total = await self._run(lambda: self._total(digest))
        asked = requested_range(range_header, total)
        file = None if method == "HEAD" else await self._open(digest)
        return BlobResponse(digest, file, total, asked)

    def _total(self, digest: Digest) -> int:
        objects = self._objects()
        if not objects.has(digest):
            raise _unknown(digest)
        return objects.size(digest)

    async def _open(self, digest: Digest) -> BinaryIO:
        """The blob's file, once it is here."""
        while (file := await self._run(lambda: self._ready(digest))) is None:
            try:
                await self._fetching.wait(digest, lambda: self._objects().path(digest))
            except IntegrityError as error:
                if await self._run(lambda: self._objects().has(digest)):
                    raise
                raise _unknown(digest) from error
        return file

    def _ready(self, digest: Digest) -> BinaryIO | None:
        path = self._objects().ready(digest)
        try:
            return None if path is None else path.open("rb")
        except FileNotFoundError:  # it had to make room for another in the meantime
            return None

    async def received(self, digest: Digest) -> messages.Received:
        """As `received` of the module."""
        return await self._run(lambda: received(self._objects(), digest))

    async def parts_left(self, digest: Digest, total: int) -> messages.Parts:
        """Where a site may put what is missing of a blob."""
        self._completing.forget(digest)  # whoever would have heard of its failure is gone
        left = await self._run(lambda: self._objects().parts_left(digest, total))
        if left is None:
            return messages.Parts(direct=False)
        missing = tuple(messages.PartAddress(**part._asdict()) for part in left.missing)
        return messages.Parts(direct=True, received=left.received, missing=missing)

    async def complete(self, digest: Digest, total: int) -> messages.Received:
        """Has an upload verified of which all came, and brought where it counts. That may take minutes: then the answer says that
        all of it is there and not yet whole, and the work goes on.

        Raises:
            Refused, IntegrityError, EnvironmentFault: as `ObjectStore.complete`.
        """
        ended = await self._completing.wait(digest, lambda: self._objects().complete(digest, total), COMPLETE_WAIT_S)
        if not ended:
            return messages.Received(received=total, whole=False, ranges=((0, total),))
        return await self.received(digest)

    async def take(
        self, digest: Digest, offset: int, total: int, body: AsyncIterator[bytes], announced: int, pour: Pour | None
    ) -> messages.Received:
        """Takes one part of an upload; what comes of one that is cut is kept.

        Args:
            announced: the body's length by its header, 0 if there is none.
            pour: a better way to the body, where the server has one.
        """
        if announced > LARGEST_PART:
            raise _too_large()
        part = await self._run(lambda: self._objects().open_part(digest, offset, total))
        with part:
            if pour is None:
                await self._write(part, body)
            else:
                await pour(part, self._run)
            held = await self._run(part.finish)
        if held == total and not await self._run(lambda: self._objects().has(digest)):
            return await self.complete(digest, total)
        return await self.received(digest)

    async def _write(self, part: Part, body: AsyncIterator[bytes]) -> None:
        batch: list[bytes] = []
        count, gathered = 0, 0
        try:
            async for chunk in body:
                count += len(chunk)
                if count > LARGEST_PART:
                    raise _too_large()
                batch.append(chunk)
                gathered += len(chunk)
                if gathered >= BATCH_BYTES:
                    data, batch, gathered = b"".join(batch), [], 0
                    if not await self._run(partial(part.write, data)):
                        return
        except ClientDisconnect:
            if batch:
                await self._run(partial(part.write, b"".join(batch)))
            raise
        if batch:
            await self._run(partial(part.write, b"".join(batch)))


def _unknown(digest: Digest) -> Refused:
    return Refused(f"Blob {digest[:12]} is not here.", "upload it first", kind="missing-blob", status=404)


def _too_large() -> Refused:
    return Refused(
        f"A part may have {LARGEST_PART} bytes, found more.",
        "send smaller parts",
        kind="part-too-large",
        status=413,
    )
