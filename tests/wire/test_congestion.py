"""Which sockets ask for bbr: it acts at the sender, so both ends have to."""

from __future__ import annotations

import contextlib
import socket
from urllib.parse import urlsplit

import pytest
from starlette.responses import Response
from tests.http_serving import serving

from crosstrain.wire.http_line import HttpLine, HttpLines

CHOICE = (socket.IPPROTO_TCP, socket.TCP_CONGESTION)


def test_both_ends_of_a_line_ask_for_bbr(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the kernel has it or not; accepted connections inherit it from the listener."""
    asked: list[tuple[str, int, object]] = []
    choose = socket.socket.setsockopt

    def note(connection: socket.socket, *arguments: object) -> None:
        if arguments[:2] == CHOICE:
            end, (_, port) = "server", connection.getsockname()
            with contextlib.suppress(OSError):
                end, (_, port) = "site", connection.getpeername()
            asked.append((end, port, arguments[2]))
        choose(connection, *arguments)  # type: ignore[call-overload]

    monkeypatch.setattr(socket.socket, "setsockopt", note)
    with serving(Response("{}")) as url:
        line = HttpLine(f"{url}/", HttpLines())
        assert line.request("GET", "x", {}, None, None).body == b"{}"
        line.close()
        port = urlsplit(url).port
    assert sorted(asked) == [("server", port, b"bbr"), ("site", port, b"bbr")]
