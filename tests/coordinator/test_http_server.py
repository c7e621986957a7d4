"""The server itself: what leaves by zero copy, connections that mix requests, and ends by a signal."""

from __future__ import annotations

import http.client
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send
from tests.fakes import World, sha256
from tests.http_serving import serving

from crosstrain.clock import SystemClock, pause
from crosstrain.coordinator.blobs import BATCH_BYTES, ZERO_COPY
from crosstrain.coordinator.incoming_body import LEAST_BYTES
from crosstrain.wire.congestion import prefer_bbr

DATA = os.urandom(5 << 20)
DIGEST = sha256(DATA)
PATIENCE_S = 20.0


class Watched:
    """An app whose messages to the server are noted by their type."""

    def __init__(self, world: World) -> None:
        self._app = world.app
        self.sent: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def note(message: Message) -> None:
            self.sent.append(message["type"])
            await send(message)

        await self._app(scope, receive, note)


@pytest.fixture
def watched(world: World) -> Watched:
    world.put(DATA)
    return Watched(world)


@pytest.fixture
def url(watched: Watched) -> Iterator[str]:
    with serving(watched) as address:
        yield address


def test_blob_leaves_without_its_bytes_passing_the_application(url: str, watched: Watched) -> None:
    for header, expected in (({}, DATA), ({"range": "bytes=1000-4999999"}, DATA[1000:5000000])):
        watched.sent.clear()
        assert httpx.get(f"{url}/v1/blobs/{DIGEST}", headers=header).content == expected
        assert watched.sent == ["http.response.start", ZERO_COPY]


def test_head_has_the_length_and_no_body(url: str) -> None:
    response = httpx.head(f"{url}/v1/blobs/{DIGEST}")
    assert (response.status_code, response.headers["content-length"], response.content) == (200, str(len(DATA)), b"")


def test_requests_of_all_kinds_mix_on_one_connection(url: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    used = set()
    for _ in range(3):
        for method, path, body, status in (
            ("GET", f"/v1/blobs/{DIGEST}", None, 200),
            ("HEAD", f"/v1/blobs/{DIGEST}", None, 200),
            ("PUT", f"/v1/blobs/{DIGEST}?offset=0&total={len(DATA)}", DATA[:9], 200),
            ("POST", "/v1/sessions/1/beat", b"{", 422),
            ("GET", "/v1/status", None, 200),
            ("GET", f"/v1/blobs/{'a' * 64}", None, 404),
        ):
            connection.request(method, path, body, {"content-type": "application/json"})
            response = connection.getresponse()
            response.read()
            assert response.status == status
            used.add(connection.sock.getsockname())
    assert len(used) == 1
    connection.close()


def test_client_that_waits_for_a_word_before_it_sends_its_body_gets_it(url: str, world: World) -> None:
    world.objects.delete(DIGEST)
    address = urlsplit(url)
    head = f"PUT /v1/blobs/{DIGEST}?offset=0&total={len(DATA)} HTTP/1.1\r\nhost: c\r\nexpect: 100-continue\r\n"
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(f"{head}content-length: 4\r\n\r\n".encode())
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(DATA[:4])
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    assert world.objects.held(DIGEST).length == 4


def test_part_of_a_small_body_whose_connection_breaks_is_kept(url: str, world: World) -> None:
    world.objects.delete(DIGEST)
    address = urlsplit(url)
    head = f"PUT /v1/blobs/{DIGEST}?offset=0&total={len(DATA)} HTTP/1.1\r\nhost: c\r\ncontent-length: {LEAST_BYTES - 1}\r\n\r\n"
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(head.encode() + DATA[:300_000])
        clock = SystemClock()
        deadline = clock.perf() + PATIENCE_S
        while world.objects.held(DIGEST).length < BATCH_BYTES:
            assert clock.perf() < deadline
            pause(0.01)
    assert world.objects.held(DIGEST).prefix >= BATCH_BYTES


def test_path_may_be_a_whole_address(url: str) -> None:
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(b"GET http://elsewhere/v1/status HTTP/1.1\r\nhost: elsewhere\r\nconnection: close\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")


def test_bbr_is_what_a_socket_gets_where_the_kernel_says_so() -> None:
    with socket.socket() as probe:
        may = prefer_bbr(probe)
        name = probe.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
    assert may == (name == "bbr")


def test_file_that_became_shorter_ends_the_connection(url: str, world: World, tmp_path: Path) -> None:
    path = world.objects.path(DIGEST)
    with httpx.stream("GET", f"{url}/v1/blobs/{DIGEST}") as response:
        os.truncate(path, 100)
        with pytest.raises(httpx.RemoteProtocolError):
            while response.read():
                pass
