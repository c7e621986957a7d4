"""Blobs over short HTTPS requests: uploads in parts, downloads by byte ranges, several at once, resumable, checked by digest.

A blob is immutable and named by the SHA-256 of its bytes, so a transfer may be interrupted at any byte and on either side,
and nothing is ever sent twice as a whole: first is asked what is there. Where the coordinator's blobs are in a bucket, bytes
go past it, to and from addresses that it signs, unless the bucket is out of reach.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from crosstrain.clock import Clock
from crosstrain.domain.ids import Digest
from crosstrain.errors import IntegrityError, Refused
from crosstrain.partial_file import discard
from crosstrain.wire import messages
from crosstrain.wire.addresses import Turns, require_address, several
from crosstrain.wire.answers import received, reply_of
from crosstrain.wire.blobs import Progress
from crosstrain.wire.crew import Crew, Labour, Threads
from crosstrain.wire.direct import DirectUpload, base_of, target_of
from crosstrain.wire.download import Download
from crosstrain.wire.http_line import HttpLines
from crosstrain.wire.line import Line
from crosstrain.wire.move import Move
from crosstrain.wire.patience import Lines, Patience, TryAgainError
from crosstrain.wire.reach import OutOfReachError, Reach, StoreWay
from crosstrain.wire.shares import LEAST_BYTES, PART_BYTES, PartSize
from crosstrain.wire.upload import Upload

log = logging.getLogger(__name__)

UPLOAD_ATTEMPTS = 5
"""Whole uploads that may arrive damaged, or be taken and lost, before it is given up."""
STREAMS = ((0.01, 2), (0.5, 8))
"""(an answer within so many seconds, streams): one connection fills a short line, and on a long one each is limited by its
window, 4 MB a round trip with Linux's defaults, and by what it takes to recover from loss."""
MOST_STREAMS = 16
UNCLEAR_S = 0.1
"""A first answer has the opening of the connection in it, and a coordinator that is busy is late on a short line too: below this
it is asked once more, because streams that are too many cost processor time at both ends."""
THROUGH = "through the coordinator"
EMPTY = {"Content-Length": "0"}
"""Of a request without a body, which some proxies refuse if it does not say so."""
Result = TypeVar("Result")


class BlobClient:
    """Sends and fetches blobs; arguments as for `ControlClient`. It has connections of its own, so that bulk transfer does
    not hold up heartbeats, and keeps none between two transfers.

    Args:
        open_line: makes a connection to an address.
        crew: who works at a transfer.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        clock: Clock,
        jitter: Callable[[], float],
        wait: Callable[[float], bool],
        open_line: Callable[[str], Line] | None = None,
        crew: Crew | None = None,
    ) -> None:
        self._clock, self._jitter, self._wait = clock, jitter, wait
        self._urls = [url + "/v1/blobs/" for url in several(url)]
        for address in self._urls:
            require_address(address)
        self._open_line = open_line or HttpLines()
        self._crew = crew or Threads()
        self._turns = Turns(len(self._urls))
        self._up, self._down = PartSize(PART_BYTES, LEAST_BYTES), PartSize(PART_BYTES, LEAST_BYTES)
        self._store = StoreWay(clock)

    def close(self) -> None:
        """Nothing is open between two transfers."""

    def upload(self, path: Path, digest: Digest, deadline_s: float, progress: Progress) -> None:
        """Makes the coordinator hold the blob.

        Raises:
            Refused: the coordinator will not take it (digest differs, no space, no right).
            Unreachable: not done before the deadline.
        """
        patience = self._patience(deadline_s, "upload")
        for attempt in range(UPLOAD_ATTEMPTS):
            try:
                self._upload(path, digest, patience.another(), progress)
                return
            except Refused as error:
                # The bytes changed on the way; the coordinator threw them away and takes them from the beginning.
                if error.kind != "integrity" or attempt + 1 == UPLOAD_ATTEMPTS or _sha256(path) != digest:
                    raise

    def download(self, digest: Digest, target: Path, deadline_s: float, progress: Progress) -> None:
        """Puts the blob at `target`, complete or not at all. Until then the bytes are beside it (partial_file.py).

        Raises:
            IntegrityError: the bytes that came are not the blob, again after a fresh start.
            Refused: the coordinator does not have it, or the way there breaks ranges.
            EnvironmentFault: the disk cannot hold it.
            Unreachable: not done before the deadline.
        """
        patience = self._patience(deadline_s, "download")
        for again in (False, True):
            answered_s, held = self._ask(digest, patience)
            if not held.whole:
                raise _missing(digest)
            if again:  # not from the store, which nobody verifies there: what the coordinator reads is
                held = held.model_copy(update={"address": None})
            if self._fetch(digest, target, held, self._streams(answered_s), patience, progress):
                return
            log.warning("blob %s came with another digest, it is thrown away", digest[:12])
            discard(target)
        raise IntegrityError(
            f"The download of blob {digest[:12]} has another digest, also from the beginning.",
            "a proxy on the way changes the bytes, or the coordinator's disk is faulty; see `crosstrain audit`",
        )

    def _fetch(
        self,
        digest: Digest,
        target: Path,
        held: messages.Received,
        streams: int,
        patience: Patience,
        progress: Progress,
    ) -> bool:
        """Moves the bytes, from where the coordinator says or from itself; whether they are the blob."""
        while held.address is not None and self._store.open:
            path = target_of(held.address)
            move = Download(digest, target, held.received, streams, self._down, progress, path)
            if self._past(move, base_of(held.address), streams, patience):
                self._store.passed()
                return move.finish()
            held = self._ask(digest, patience)[1]
        move = Download(digest, target, held.received, streams, self._down, progress, digest)
        self._run(move, streams, patience, self._urls, THROUGH)
        return move.finish()

    def _upload(self, path: Path, digest: Digest, patience: Patience, progress: Progress) -> None:
        total = path.stat().st_size
        for _attempt in range(UPLOAD_ATTEMPTS):
            answered_s, held = self._ask(digest, patience)
            progress(held.received, total)
            if held.whole:
                return
            streams = self._streams(answered_s)
            if held.direct_from is not None and total >= held.direct_from:
                if self._send_past(path, digest, streams, patience, progress):
                    return
                held = self._ask(digest, patience)[1]
                if held.whole:
                    return
            move = Upload(digest, path, total, held, streams, self._up, progress)
            self._run(move, streams, patience, self._urls, THROUGH)
            if move.whole:
                return
        raise Refused(
            f"Blob {digest[:12]} was sent {UPLOAD_ATTEMPTS} times, each part was taken, and it is not there.",
            "the coordinator loses what it takes; see its disk and its log",
            kind="parts-missing",
        )

    def _send_past(self, path: Path, digest: Digest, streams: int, patience: Patience, progress: Progress) -> bool:
        """Uploads straight into the object store; False if it has to go through the coordinator."""
        total = path.stat().st_size
        while self._store.open:
            left = self._left(digest, total, patience)
            if not left.direct:
                return False
            beyond = total - left.received - sum(part.length for part in left.missing)
            if left.missing:
                move = DirectUpload(digest, path, total, left.missing, beyond, PartSize(total, 1), progress)
                base = base_of(left.missing[0].address)
                if not self._past(move, base, min(streams, len(left.missing)), patience):
                    continue
            if not beyond and self._complete(digest, total, patience):
                self._store.passed()  # not before: a store may take parts and lose them
                return True
        return False

    def _past(self, move: Move, base: str, streams: int, patience: Patience) -> bool:
        """Moves bytes between here and the object store; False if that needs other addresses, or another way."""
        try:
            self._run(
                move, streams, patience.elsewhere(Reach(self._clock, streams)), [base], f"past the coordinator ({base})"
            )
        except OutOfReachError as error:
            self._store.lost(str(error))
            return False
        except Refused as error:
            self._store.refused(error, move.arrived)
            return False
        return True

    def _ask(self, digest: Digest, patience: Patience) -> tuple[float, messages.Received]:
        """(seconds that an answer takes, what the coordinator holds)."""

        def ask(line: Line) -> tuple[float, messages.Received]:
            asked = self._clock.perf()
            held = received(line.request("GET", f"{digest}/received", {}, None, None))
            return self._clock.perf() - asked, held

        def ask_twice(line: Line) -> tuple[float, messages.Received]:
            first_s, held = ask(line)
            if not STREAMS[0][0] <= first_s < UNCLEAR_S:
                return first_s, held
            again_s, held = ask(line)
            return min(first_s, again_s), held

        return self._hear(ask_twice, patience)

    def _left(self, digest: Digest, total: int, patience: Patience) -> messages.Parts:
        """Where the object store takes what is missing."""

        def ask(line: Line) -> messages.Parts:
            answer = line.request("POST", f"{digest}/parts?total={total}", EMPTY, None, None)
            return reply_of(answer, messages.Parts)

        return self._hear(ask, patience)

    def _complete(self, digest: Digest, total: int, patience: Patience) -> bool:
        """Says that all parts are there, until the coordinator has verified the blob; False if it misses some."""
        verifying = 0

        def ask(line: Line) -> bool:
            try:
                held = received(line.request("POST", f"{digest}/complete?total={total}", EMPTY, None, None))
            except Refused as error:
                if error.kind != "parts-missing":
                    raise
                self._store.refused(error, 0)
                return False
            if not held.whole:
                nonlocal verifying
                verifying += 1  # that is progress: it is asked again soon, and answers when it is done or after a while
                raise TryAgainError("the coordinator is verifying it")
            return True

        return self._hear(ask, patience, lambda: verifying)

    def _hear(self, ask: Callable[[Line], Result], patience: Patience, moved: Callable[[], int] = lambda: 0) -> Result:
        """The coordinator's answer to one request, which is repeated until there is one."""
        found: list[Result] = []

        def task(line: Line) -> None:
            found.append(ask(line))

        lines = Lines(self._urls, self._open_line)
        try:
            patience.work(lines, lambda: None if found else task, moved, lambda: None)
        finally:
            lines.close()
        return found[0]

    def _run(self, move: Move, streams: int, patience: Patience, urls: Sequence[str], way: str) -> None:
        opened: list[Lines] = []

        def work(look: Callable[[], None]) -> None:
            lines = Lines(urls, self._open_line)
            opened.append(lines)
            try:
                patience.work(lines, move.next_task, lambda: move.arrived, look)
            finally:
                lines.close()

        def end() -> None:
            move.stop()
            patience.end()
            for lines in opened:
                lines.close()

        started = self._clock.perf()
        self._crew.run(Labour(work, move.look, end), streams)
        seconds = self._clock.perf() - started
        if move.moved and seconds > 0:
            log.info(
                "%s of %.1f MB %s took %.1f s with %d streams: %.1f MB/s",
                move.what,
                move.moved / 1e6,
                way,
                seconds,
                streams,
                move.moved / 1e6 / seconds,
            )

    def _streams(self, answered_s: float) -> int:
        wanted = next((streams for limit_s, streams in STREAMS if answered_s < limit_s), MOST_STREAMS)
        return min(self._crew.most, wanted)

    def _patience(self, deadline_s: float, what: str) -> Patience:
        return Patience(self._clock, self._jitter, self._wait, self._turns, deadline_s, what)


def _missing(digest: Digest) -> Refused:
    return Refused(
        f"Blob {digest[:12]} is not at the coordinator.",
        "it may have been removed for newer ones: ask for work, and take the generation that is current",
        kind="missing-blob",
        status=404,
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
