"""Large bodies, which come in past the parser: every byte once, and the connection goes on behind them."""

from __future__ import annotations

import http.client
import os
import random
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from tests.fakes import World, build_world, sha256
from tests.http_serving import serving
from tests.waiting import until

from crosstrain.coordinator.http_server import HttpServer
from crosstrain.coordinator.incoming_body import LEAST_BYTES
from crosstrain.domain.byte_ranges import ByteRanges
from crosstrain.pieces import WORTH_BYTES
from crosstrain.wire.listening import listen

DATA = random.Random(4).randbytes(5 * LEAST_BYTES + 12345)
DIGEST = sha256(DATA)
PATIENCE_S = 20.0


@dataclass
class Listened:
    """An app that notes for which requests it was asked to take the body as messages."""

    app: ASGIApp
    asked: list[str] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def note() -> dict[str, object]:
            self.asked.append(scope["method"])
            return dict(await receive())

        await self.app(scope, note, send)


@pytest.fixture
def listened(world: World) -> Listened:
    return Listened(world.app)


@pytest.fixture
def address(listened: Listened) -> Iterator[tuple[str, int]]:
    with serving(listened) as url:
        yield address_of(url)


def address_of(url: str) -> tuple[str, int]:
    found = urlsplit(url)
    return str(found.hostname), int(found.port or 0)


def head(begin: int, stop: int, total: int = len(DATA)) -> bytes:
    return (
        f"PUT /v1/blobs/{DIGEST}?offset={begin}&total={total} HTTP/1.1\r\nhost: c\r\n"
        f"content-length: {stop - begin}\r\n\r\n"
    ).encode()


@contextmanager
def connected(address: tuple[str, int]) -> Iterator[tuple[socket.socket, Callable[[], int]]]:
    """A socket, and what reads the status of the next answer on it."""
    with socket.create_connection(address, PATIENCE_S) as connection, connection.makefile("rb") as answers:

        def status() -> int:
            found = int(answers.readline().split()[1])
            headers = http.client.parse_headers(answers)
            answers.read(int(headers["content-length"]))
            return found

        yield connection, status


def test_requests_sent_without_waiting_for_answers_are_told_apart(
    address: tuple[str, int], world: World, listened: Listened
) -> None:
    third = len(DATA) // 3
    spans = [(0, third), (2 * third, len(DATA)), (third, 2 * third)]
    ask = b"GET /v1/status HTTP/1.1\r\nhost: c\r\n\r\n"
    stream = b"".join(head(*span) + DATA[span[0] : span[1]] + ask for span in spans)
    with connected(address) as (connection, status):
        sender = threading.Thread(target=connection.sendall, args=(stream,))
        sender.start()
        assert [status() for _ in range(2 * len(spans))] == [200] * 6
        sender.join()
    assert world.objects.path(DIGEST).read_bytes() == DATA
    assert "PUT" not in listened.asked


def test_body_in_pieces_with_pauses_is_kept_as_it_comes_and_to_its_last_byte(
    address: tuple[str, int], world: World
) -> None:
    with connected(address) as (connection, _):
        connection.sendall(head(0, len(DATA)))
        sent = 0
        for size in (2 * WORTH_BYTES, 1, LEAST_BYTES, 5, 3 * LEAST_BYTES):
            connection.sendall(DATA[sent : sent + size])
            sent += size
            until(lambda sent=sent: world.objects.held(DIGEST).prefix > sent - WORTH_BYTES)
        connection.sendall(DATA[sent : sent + 5])
    until(lambda: world.objects.held(DIGEST).prefix == sent + 5)
    assert world.objects.held(DIGEST) == ByteRanges(((0, sent + 5),))


def test_connection_that_is_reset_leaves_what_it_brought(address: tuple[str, int], world: World) -> None:
    with connected(address) as (connection, _):
        connection.sendall(head(0, len(DATA)) + DATA[: 2 * LEAST_BYTES])
        until(lambda: world.objects.held(DIGEST).length > 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    with connected(address) as (connection, status):
        connection.sendall(head(LEAST_BYTES, len(DATA)) + DATA[LEAST_BYTES:])
        assert status() == 200
        held = world.objects.held(DIGEST).prefix
        connection.sendall(head(held, LEAST_BYTES) + DATA[held:LEAST_BYTES] if held < LEAST_BYTES else b"")
        assert held == len(DATA) or status() == 200
    assert world.objects.path(DIGEST).read_bytes() == DATA


@pytest.mark.parametrize(("total", "status"), [(1000, 409), (len(DATA), 200)])
def test_connection_goes_on_behind_a_body_that_nobody_wants(
    address: tuple[str, int], world: World, total: int, status: int
) -> None:
    if status == 200:
        world.put(DATA)
    client = http.client.HTTPConnection(*address, timeout=PATIENCE_S)
    put = ("PUT", f"/v1/blobs/{DIGEST}?offset=0&total={total}", DATA)
    for request, expected in ((put, status), (put, status), (("GET", "/v1/status"), 200)):
        client.request(*request)
        answer = client.getresponse()
        assert (answer.status, answer.will_close) == (expected, False)
        answer.read()
    client.close()


def test_disk_that_fills_up_in_the_middle_is_said_and_the_upload_goes_on(small_disk: Path) -> None:
    world = build_world(small_disk)
    with serving(world.app) as url, connected(address_of(url)) as (connection, status):
        connection.sendall(head(0, len(DATA)) + DATA[:LEAST_BYTES])
        until(lambda: world.objects.held(DIGEST).prefix > LEAST_BYTES - WORTH_BYTES)  # and writes no more
        ballast = world.directory / "ballast"
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(world.directory).free)
        connection.sendall(DATA[LEAST_BYTES:])
        assert status() == 507
        ballast.unlink()
        held = world.objects.held(DIGEST).prefix
        assert 0 < held < len(DATA)
        connection.sendall(head(held, len(DATA)) + DATA[held:])
        assert status() == 200
    assert world.objects.path(DIGEST).read_bytes() == DATA
    world.database.close()


def test_server_that_is_stopped_waits_for_the_part_that_comes_in(world: World) -> None:
    listener = listen("127.0.0.1", 0)
    server = HttpServer(world.app)
    thread = threading.Thread(target=server.run, args=(listener, ()))
    address = listener.getsockname()
    thread.start()
    with connected(address) as (idle, idle_status), connected(address) as (connection, status):
        idle.sendall(b"GET /v1/status HTTP/1.1\r\nhost: c\r\n\r\n")
        assert idle_status() == 200
        connection.sendall(head(0, 2 * LEAST_BYTES) + DATA[:LEAST_BYTES])
        until(lambda: world.objects.held(DIGEST).length > 0)
        server.stop()
        assert idle.recv(1) == b""  # it stops now
        connection.sendall(DATA[LEAST_BYTES : 2 * LEAST_BYTES])
        assert status() == 200
        thread.join(PATIENCE_S / 4)
        assert not thread.is_alive()
    assert world.objects.held(DIGEST).prefix == 2 * LEAST_BYTES
