"""Transfers between two processes, either of which is killed at random bytes: they always end, and what is sent twice is no more
than what was on its way."""

from __future__ import annotations

import contextlib
import http.client
import multiprocessing
import os
import random
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from tests.fakes import build_world, sha256

from crosstrain.clock import SystemClock, pause
from crosstrain.coordinator.http_server import HttpServer
from crosstrain.demo.prepare import free_port
from crosstrain.domain.ids import Digest
from crosstrain.partial_file import noted_bytes
from crosstrain.wire.crew import Threads
from crosstrain.wire.http_line import HttpLine, HttpLines
from crosstrain.wire.listening import listen
from crosstrain.wire.transfer import BlobClient

KILLS = 5
"""In each of the four combinations of direction and victim."""
TOTAL = 24 << 20
PATIENCE_S = 120.0
CHUNK = 1 << 16
STREAMS = 2
ON_ITS_WAY = 5 * CHUNK
"""Bytes of a stream that passed and nobody has received: in the hand of the line, and in the buffers of its socket and the
receiver's, for each of which the kernel takes twice what is asked for."""
RECEIVED = noted_bytes(TOTAL)
"""Bytes of a stream that were received and are not noted yet."""
CONTEXT = multiprocessing.get_context("forkserver")
# Not this module: the server of processes does not look where tests are.
CONTEXT.set_forkserver_preload(["crosstrain.assembly", "crosstrain.coordinator.http_server", "anyio.from_thread"])


class Workers(Threads):
    """As everywhere, however late a busy machine answers."""

    most = STREAMS


class NarrowLine(HttpLine):
    """Little is in its socket."""

    def _connect(self) -> http.client.HTTPConnection:
        connection = super()._connect()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, CHUNK)
        return connection


def serve(directory: Path, port: int) -> None:
    """A coordinator's process."""
    listener = listen("127.0.0.1", port)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, CHUNK)
    HttpServer(build_world(directory).app).run(listener)


def move(way: str, port: int, path: Path, digest: Digest) -> None:
    """A site's process."""
    url, lines = f"http://127.0.0.1:{port}", HttpLines()
    jitter = random.Random().random
    blobs = BlobClient(url, SystemClock(), jitter, pause, lambda url: NarrowLine(url, lines), Workers())
    if way == "up":
        blobs.upload(path, digest, PATIENCE_S, lambda _done, _total: None)
    else:
        blobs.download(digest, path, PATIENCE_S, lambda _done, _total: None)


class Wire:
    """A TCP line that counts the bytes it passes, and calls when so many have passed."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = listen("127.0.0.1", 0)
        self._lock = threading.Lock()
        self._due: tuple[int, Callable[[], None]] | None = None
        self.port = int(self._listener.getsockname()[1])
        self.passed = 0
        self._calls: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def at(self, passed: int, act: Callable[[], None]) -> None:
        self._due = (passed, act)

    def held(self) -> AbstractContextManager[object]:
        """Nothing more passes than what is on its way."""
        return self._lock

    def close(self) -> None:
        # A blocked accept(2) does not notice that its socket is closed.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        for thread in self._calls:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._calls.append(threading.Thread(target=self._call, args=(near,), daemon=True))
            self._calls[-1].start()

    def _call(self, near: socket.socket) -> None:
        with near:
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            with far:
                back = threading.Thread(target=self._pass, args=(far, near), daemon=True)
                back.start()
                self._pass(near, far)
                back.join()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        # Little on its way, so that what is counted is what arrives.
        sink.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, CHUNK)
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                sink.sendall(data)
                self._count(len(data))
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _count(self, count: int) -> None:
        with self._lock:
            self.passed += count
            if self._due is None or self.passed < self._due[0]:
                return
            act, self._due = self._due[1], None
        act()


@pytest.fixture
def processes() -> Iterator[Callable[..., BaseProcess]]:
    """Starts processes, and ends them with the test."""
    started: list[BaseProcess] = []

    def start(target: Callable[..., None], *arguments: object) -> BaseProcess:
        process = CONTEXT.Process(target=target, args=arguments, daemon=True)
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.join()


@pytest.mark.system
@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("victim", ["site", "coordinator"])
def test_transfer_whose_ends_are_killed_at_random_bytes_ends_and_sends_little_twice(
    way: str, victim: str, fast_tmp: Path, processes: Callable[..., BaseProcess]
) -> None:
    rng = random.Random(f"{way} {victim}")
    data = rng.randbytes(TOTAL)
    digest, path, port = sha256(data), fast_tmp / "blob", free_port()
    objects = fast_tmp / "objects"
    if way == "up":
        path.write_bytes(data)
    else:
        (objects / digest[:2]).mkdir(parents=True)
        (objects / digest[:2] / digest).write_bytes(data)
    wire = Wire(port)

    def begin(who: str) -> BaseProcess:
        return (
            processes(serve, fast_tmp, port) if who == "coordinator" else processes(move, way, wire.port, path, digest)
        )

    running = {who: begin(who) for who in ("coordinator", "site") if who != victim}
    points = sorted(rng.randrange(TOTAL * 9 // 10) for _ in range(KILLS))
    for point in points:
        due = threading.Event()

        def kill(due: threading.Event = due) -> None:
            pid = running[victim].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            due.set()

        with wire.held():  # or all of it might have passed before anybody says when to kill
            running[victim] = begin(victim)
            wire.at(max(point, wire.passed + CHUNK), kill)
        assert due.wait(PATIENCE_S), f"{wire.passed} of {point} bytes passed, {running}"
        running[victim].join()
    running[victim] = begin(victim)
    running["site"].join(PATIENCE_S)
    assert running["site"].exitcode == 0
    there = path if way == "down" else objects / digest[:2] / digest
    assert there.read_bytes() == data
    assert wire.passed < TOTAL + KILLS * STREAMS * (ON_ITS_WAY + RECEIVED)
    assert [found.name for found in fast_tmp.glob("**/*.part")] == []
    wire.close()
