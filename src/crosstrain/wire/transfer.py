"""Blobs over short HTTPS requests: uploads in parts, downloads by byte ranges, both resumable, both checked by digest.

A blob is immutable and named by the SHA-256 of its bytes, so a transfer may be interrupted at any byte and on either side,
and nothing is ever sent twice as a whole: the sender first asks what is there.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import httpx

from crosstrain.clock import Clock
from crosstrain.domain.ids import Digest
from crosstrain.errors import IntegrityError, Refused, Unreachable
from crosstrain.wire.addresses import Addresses
from crosstrain.wire.client import FIRST_RETRY_S, LONGEST_RETRY_S, RETRIED_STATUS, refusal_of, trouble_of

PART_BYTES = 16 << 20
"""Body of one upload request: small enough for proxies with a size limit, large enough that its round trip is noise."""
SMALLEST_PART_BYTES = 1 << 18
"""Below this a part's round trips and headers would cost more than the bytes that a cut loses."""
CHUNK_BYTES = 1 << 20
UPLOAD_ATTEMPTS = 5
"""Whole uploads that may arrive damaged before the line is given up."""

Progress = Callable[[int, int], None]
"""Called with (bytes there, bytes in all)."""


class BlobClient:
    """Sends and fetches blobs; arguments as for `ControlClient`. It has connections of its own, so that bulk transfer does
    not hold up heartbeats."""

    def __init__(
        self,
        url: str | Sequence[str],
        clock: Clock,
        jitter: Callable[[], float],
        wait: Callable[[float], bool],
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._clock = clock
        self._jitter = jitter
        self._wait = wait
        self._part_bytes = PART_BYTES
        self._addresses = Addresses(url, "/v1/blobs/", transport)

    def close(self) -> None:
        self._addresses.close()

    def upload(self, path: Path, digest: Digest, deadline_s: float, progress: Progress) -> None:
        """Makes the coordinator hold the blob.

        Raises:
            Refused: the coordinator will not take it (digest differs, no space, no right).
            Unreachable: not done before the deadline.
        """
        total = path.stat().st_size
        for attempt in range(UPLOAD_ATTEMPTS):
            try:
                with path.open("rb") as file:
                    self._until_done(lambda: self._send_rest(file, digest, total, progress), deadline_s, "upload")
                return
            except Refused as error:
                # The bytes changed on the way; the coordinator threw them away and takes them from the beginning.
                if error.kind != "integrity" or attempt + 1 == UPLOAD_ATTEMPTS or _sha256(path) != digest:
                    raise

    def download(self, digest: Digest, target: Path, deadline_s: float, progress: Progress) -> None:
        """Puts the blob at `target`, complete or not at all.

        Raises:
            IntegrityError: the bytes that came are not the blob, again after a fresh start.
            Refused: the coordinator does not have it.
            Unreachable: not done before the deadline.
        """
        part = target.with_name(target.name + ".part")
        for _attempt in ("resumed", "from the beginning"):
            self._until_done(lambda: self._fetch_rest(digest, part, progress), deadline_s, "download")
            if _sha256(part) == digest:
                part.replace(target)
                _sync_directory(target.parent)
                return
            part.unlink()
        raise IntegrityError(
            f"The download of blob {digest[:12]} has another digest, also from the beginning.",
            "a proxy on the way changes the bytes, or the coordinator's disk is faulty; see `crosstrain audit`",
        )

    def _until_done(self, attempt: Callable[[], bool], deadline_s: float, what: str) -> None:
        started = self._clock.perf()
        pause = FIRST_RETRY_S
        while True:
            trouble = ""
            try:
                done = attempt()
                self._addresses.answered()
                if done:
                    return
                pause = FIRST_RETRY_S
            except httpx.HTTPError as error:
                trouble = f"{type(error).__name__}: {error}"
            except _TryAgainError as again:
                trouble = str(again)
            if trouble and not self._addresses.turn():
                continue
            left = deadline_s - (self._clock.perf() - started)
            if left <= 0 or (trouble and self._wait(min(left, pause * (0.5 + self._jitter())))):
                raise Unreachable(
                    f"The {what} was not done within {deadline_s:.0f} s ({trouble or 'it was under way'}).",
                    "it continues from where it stopped when it is tried again",
                )
            if trouble:
                pause = min(LONGEST_RETRY_S, 2 * pause)

    def _send_rest(self, file: BinaryIO, digest: Digest, total: int, progress: Progress) -> bool:
        """Sends one part; returns whether the coordinator now holds the whole blob."""
        have = self._received(digest, total)
        progress(have, total)
        if have == total:
            return True
        length = min(self._part_bytes, total - have)
        try:
            response = self._addresses.http.put(
                digest,
                params={"offset": have, "total": total},
                content=_slice(file, have, length),
                headers={"content-length": str(length), "content-type": "application/octet-stream"},
            )
        except httpx.HTTPError:
            # A part that is cut is lost as a whole: on a line that breaks often only smaller ones get through.
            self._part_bytes = max(SMALLEST_PART_BYTES, self._part_bytes // 2)
            raise
        _raise_for(response)
        self._part_bytes = min(PART_BYTES, 2 * self._part_bytes)
        progress(have + length, total)
        return have + length == total

    def _received(self, digest: Digest, total: int) -> int:
        response = self._addresses.http.get(f"{digest}/received", params={"total": total})
        _raise_for(response)
        try:
            return int(response.json()["received"])
        except (ValueError, TypeError, KeyError) as error:
            raise refusal_of(response.status_code, response.content) from error

    def _fetch_rest(self, digest: Digest, part: Path, progress: Progress) -> bool:
        have = part.stat().st_size if part.exists() else 0
        headers = {"range": f"bytes={have}-"} if have else {}
        with self._addresses.http.stream("GET", digest, headers=headers) as response:
            if response.status_code == 416:
                return True  # the part is complete, or too long; the digest tells
            if response.status_code >= 400:
                response.read()
            _raise_for(response)
            start, total = _range_of(response, have)
            with part.open("r+b" if have else "wb") as file:
                file.seek(start)
                file.truncate()
                for chunk in response.iter_bytes():  # of no fixed size: what a cut leaves in a buffer is lost
                    file.write(chunk)
                    progress(file.tell(), total or 0)
                file.flush()
                os.fsync(file.fileno())
                end = file.tell()
        if end == start and end != total:
            raise _TryAgainError("an empty answer")
        return total is None or end == total


class _TryAgainError(Exception):
    """The server cannot serve right now."""


def _range_of(response: httpx.Response, have: int) -> tuple[int, int | None]:
    """(offset of the first byte of the body, length of the whole blob); a server that ignores Range starts at 0, and one
    that sends in chunks does not say the length: the digest tells whether all came."""
    if response.status_code == 200:
        length = response.headers.get("content-length", "")
        return 0, int(length) if length.isdecimal() else None
    match = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", response.headers.get("content-range", ""))
    if response.status_code != 206 or not match or int(match[1]) != have:
        raise Refused(
            f"Expected bytes from {have} on, found status {response.status_code} with "
            f"Content-Range {response.headers.get('content-range')!r}.",
            "a proxy on the way breaks range requests; ask for it to pass them on",
            kind="bad-range",
        )
    return int(match[1]), int(match[3])


def _raise_for(response: httpx.Response) -> None:
    if response.status_code in RETRIED_STATUS:
        raise _TryAgainError(trouble_of(response))
    if response.status_code >= 400:
        error = refusal_of(response.status_code, response.content)
        if isinstance(error, Refused) and error.kind == "upload-gap":
            raise _TryAgainError(error.message)  # what the coordinator held is gone; it says anew where to continue
        raise error


def _slice(file: BinaryIO, offset: int, length: int) -> Iterator[bytes]:
    file.seek(offset)
    while length > 0:
        chunk = file.read(min(CHUNK_BYTES, length))
        if not chunk:
            raise IntegrityError(
                "The file became shorter while it was sent.", "nothing may write to the spool directory"
            )
        length -= len(chunk)
        yield chunk


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
