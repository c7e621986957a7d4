"""Bodies that a sink takes off a plain connection: in drips, cut, short, and on a line that another thread closes."""

from __future__ import annotations

import asyncio
import http.client
import os
import random
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from tests.http_serving import Request
from tests.waiting import until
from tests.wire.bench import Bench

from crosstrain.domain import timeouts
from crosstrain.partial_file import look
from crosstrain.pieces import WORTH_BYTES, Moved, receive_at
from crosstrain.wire.http_line import HttpLine, HttpLines
from crosstrain.wire.line import Answer, LineBrokenError
from crosstrain.wire.listening import listen

DATA = random.Random(6).randbytes((1 << 20) + 77)
DRIPS = (1, 5, 2 * WORTH_BYTES, 8192, WORTH_BYTES, 3)
PATIENCE_S = 20.0


class Dripping(Response):
    """A range of the blob, the next drip of it when all before is with the receiver but for what is not worth waking for; breaks
    before `cut_at`, if that is in the range."""

    def __init__(self, start: int, stop: int, cut_at: int, target: Path) -> None:
        super().__init__()
        self._start, self._stop, self._cut_at, self._target = start, stop, min(stop, cut_at), target

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [
            (b"content-length", b"%d" % (self._stop - self._start)),
            (b"content-range", b"bytes %d-%d/%d" % (self._start, self._stop - 1, len(DATA))),
        ]
        await send({"type": "http.response.start", "status": 206, "headers": headers})
        sent = self._start
        while sent < self._cut_at:
            for size in DRIPS:
                drip = DATA[sent : min(sent + size, self._cut_at)]
                await send({"type": "http.response.body", "body": drip, "more_body": True})
                sent += len(drip)
                if sent < self._cut_at:
                    await asyncio.to_thread(self._taken, sent)
        if sent < self._stop:
            raise ConnectionResetError("cut by the test")
        await send({"type": "http.response.body", "body": b""})

    def _taken(self, sent: int) -> None:
        until(lambda: self._noted > sent - WORTH_BYTES)

    @property
    def _noted(self) -> int:
        record = look(self._target)
        return record.held.length if record else 0


def test_download_in_drips_that_is_cut_goes_on_behind_the_last_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crosstrain.wire.transfer.PART_BYTES", 1 << 30)
    digest = bench.world.put(DATA)
    cuts = [5 * WORTH_BYTES + 1, 2 * WORTH_BYTES + 17]
    spans: list[tuple[int, int]] = []

    def drip(request: Request) -> Response | None:
        if request.path.count("/") != 3:
            return None
        first, last = map(int, request.headers["range"].removeprefix("bytes=").split("-"))
        cut_at = cuts[-1] if cuts else len(DATA)
        if first < cut_at <= last:
            cuts.pop()
        spans.append((first, min(cut_at, last + 1)))
        return Dripping(first, last + 1, cut_at, bench.target)

    bench.line.instead = drip
    bench.client().download(digest, bench.target, 100.0, bench.progress)
    assert bench.target.read_bytes() == DATA
    assert cuts == []
    assert sum(stop - start for start, stop in spans) == len(DATA)  # no byte twice


class Kept:
    """A sink that keeps everything in a file.

    Attributes:
        begun: the head is there, and of the body what comes with it, if that is more than the response's own buffer holds.
    """

    def __init__(self, path: Path, much: bool = False) -> None:
        self._path, self._offset, self._much = path, 0, much
        self.begun = threading.Event()

    def begin(self, _answer: Answer) -> bool:
        self._path.touch()
        if not self._much:
            self.begun.set()
        return True

    def write(self, data: memoryview) -> None:
        with self._path.open("r+b") as file:
            self._offset += os.pwrite(file.fileno(), data, self._offset)
        self.begun.set()

    def receive(self, connection: socket.socket, count: int) -> Moved:
        with self._path.open("r+b") as file:
            moved = receive_at(connection, file.fileno(), self._offset, count)
        self._offset += moved.received
        return moved


@contextmanager
def answering(*answers: Iterable[bytes]) -> Iterator[str]:
    """A server of one connection that sends each answer in pieces, and then waits for the connection's end; its address."""
    listener = listen("127.0.0.1", 0)

    def serve() -> None:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, connection.makefile("rb") as requests:
            for answer in answers:
                assert requests.readline()
                http.client.parse_headers(requests)
                for piece in answer:
                    connection.sendall(piece)
            assert requests.readline() == b""

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        thread.join()
        listener.close()


def head(length: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % length


@contextmanager
def opened(url: str) -> Iterator[HttpLine]:
    line = HttpLine(url, HttpLines())
    try:
        yield line
    finally:
        line.close()


@pytest.mark.parametrize("length", [0, 1, 8191, 8192, 8193, 70_000, len(DATA)])
@pytest.mark.parametrize("behind", [0, 1, 5000])
def test_body_is_whole_however_much_of_it_comes_with_the_head_and_the_connection_goes_on(
    fast_tmp: Path, length: int, behind: int
) -> None:
    """`behind`: bytes of the body that are sent with the head; 0 for all."""
    body = DATA[:length]
    with_head = behind or length
    sent = [head(length) + body[:with_head], body[with_head:]]
    with answering(sent, [head(2) + b"{}"], sent) as url, opened(url) as line:
        for name in ("one", "other"):
            assert line.request("GET", "x", {}, None, Kept(fast_tmp / name)).status == 200
            assert (fast_tmp / name).read_bytes() == body
            if name == "one":
                assert line.request("GET", "y", {}, None, None).body == b"{}"


def test_line_that_brings_little_is_waited_for_with_every_byte(fast_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than is worth waking for comes in each wait, and counts."""
    blob, with_head, slow = fast_tmp / "blob", 20_000, 3

    class Impatient(Kept):
        def begin(self, answer: Answer) -> bool:
            monkeypatch.setattr(timeouts, "REQUEST_S", 0.2)
            return super().begin(answer)

    def slowly() -> Iterator[bytes]:
        yield head(len(DATA)) + DATA[:with_head]
        for sent in range(with_head, with_head + slow):
            yield DATA[sent : sent + 1]
            until(lambda sent=sent: blob.is_file() and blob.stat().st_size > sent)

    broken = pytest.raises(LineBrokenError, match="timed out")
    with answering(slowly()) as url, opened(url) as line, broken:
        line.request("GET", "x", {}, None, Impatient(blob))
    assert blob.read_bytes() == DATA[: with_head + slow]


@pytest.mark.parametrize("length", [0, 10, 20_000])
def test_line_that_another_thread_closes_ends_a_download_that_waits(fast_tmp: Path, length: int) -> None:
    """Where it waits depends on how much came with the head."""
    sink, broken = Kept(fast_tmp / "blob", length > 10), []
    with answering([head(len(DATA)) + DATA[:length]]) as url, opened(url) as line:

        def download() -> None:
            with pytest.raises(LineBrokenError) as caught:
                line.request("GET", "x", {}, None, sink)
            broken.append(caught.value)

        thread = threading.Thread(target=download, daemon=True)
        thread.start()
        assert sink.begun.wait(PATIENCE_S)
        line.close()
        thread.join(PATIENCE_S / 2)
        assert not thread.is_alive()
    assert len(broken) == 1
    assert (fast_tmp / "blob").read_bytes() == DATA[:length]


def test_connection_that_ends_before_the_body_leaves_what_it_brought(fast_tmp: Path) -> None:
    listener = listen("127.0.0.1", 0)
    with listener, opened(f"http://127.0.0.1:{listener.getsockname()[1]}/") as line:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as requests:
                assert requests.readline()
                http.client.parse_headers(requests)
                connection.sendall(head(len(DATA)) + DATA[:-1])

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(LineBrokenError, match="IncompleteRead"):
            line.request("GET", "x", {}, None, Kept(fast_tmp / "blob"))
        thread.join()
    assert (fast_tmp / "blob").read_bytes() == DATA[:-1]
