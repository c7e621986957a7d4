"""A line over connections that a proxy closes after every answer without saying so."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

from crosstrain.wire.http_line import LOST_BEFORE_CLOSING, HttpLine, HttpLines
from crosstrain.wire.line import LineBrokenError
from crosstrain.wire.listening import listen


class Taciturn:
    """A server that answers so many requests of each connection and closes it then, without a word.

    Attributes:
        closing: what each request said of its connection.
    """

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        self.each = 1
        self.closing: list[str | None] = []

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as requests:
                for _ in range(self.each):
                    if not requests.readline():
                        break
                    self.closing.append(http.client.parse_headers(requests)["connection"])
                    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")


@pytest.fixture
def server() -> Iterator[Taciturn]:
    listener = listen("127.0.0.1", 0)
    made = Taciturn(listener)
    thread = threading.Thread(target=made.serve)
    thread.start()
    yield made
    listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    listener.close()


@pytest.fixture
def line(server: Taciturn) -> Iterator[HttpLine]:
    made = HttpLine(server.url, HttpLines())
    yield made
    made.close()


def answered(line: HttpLine) -> bool:
    try:
        return line.request("GET", "x", {}, None, None).status == 200
    except LineBrokenError:
        return False


def test_line_whose_connections_give_one_answer_each_soon_opens_one_for_every_request(
    line: HttpLine, server: Taciturn
) -> None:
    assert [answered(line) for _ in range(8)] == [True, False, True, False, True, True, True, True]
    assert server.closing == [None] * LOST_BEFORE_CLOSING + ["close"] * 4


def test_line_that_loses_connections_now_and_then_keeps_them_open(line: HttpLine, server: Taciturn) -> None:
    server.each = 2
    assert [answered(line) for _ in range(11)] == 3 * [True, True, False] + [True, True]
    assert set(server.closing) == {None}
