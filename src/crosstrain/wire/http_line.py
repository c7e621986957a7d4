"""A line over HTTP/1.1 by `http.client`: half the processor seconds per byte of httpx, because bodies go from the
socket to the file by C (pieces.py) and are sent by sendfile(2) (docs/measurements.md).

Proxies and trust are taken from the environment as httpx takes them: `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`,
`SSL_CERT_FILE`, `SSL_CERT_DIR`.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import select
import socket
import ssl
from collections.abc import Mapping
from functools import cached_property
from typing import BinaryIO
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from crosstrain.domain import timeouts
from crosstrain.errors import IntegrityError, UsageError
from crosstrain.pieces import let_wait, system_error, wait_no_more
from crosstrain.wire.addresses import USER_AGENT
from crosstrain.wire.congestion import prefer_bbr
from crosstrain.wire.line import Answer, Line, LineBrokenError, Sink, Slice

BUFFER_BYTES = 1 << 19
"""For bodies over TLS, and for what comes with an answer's head."""
SEND_BYTES = 4 << 20
LOST_BEFORE_CLOSING = 2
"""Connections in a row that gave one answer and not another: the way closes each after its answer and does not say so, as
tinyproxy does. A server that was started again loses a line one."""
LARGEST_ANSWER = 1 << 20
"""Bytes of a body that no sink takes; those of the coordinator are small."""


class HttpLines:
    """Opens lines; they share what is known of trust."""

    def __call__(self, url: str) -> Line:
        return HttpLine(url, self)

    @cached_property
    def tls(self) -> ssl.SSLContext:
        return httpx.create_ssl_context()


class HttpLine:
    """A line to an address (`line.Line`).

    Args:
        url: scheme, host, and what all paths begin with; user and password become an Authorization header.

    Raises:
        UsageError: the environment names a proxy that cannot be used.
    """

    def __init__(self, url: str, lines: HttpLines) -> None:
        self._url, self._lines = urlsplit(url), lines
        self._proxy = proxy_for(self._url)
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._open: http.client.HTTPConnection | None = None
        self._lost = 0
        """Connections in a row that broke at their second request or a later one."""

    def request(
        self, method: str, path: str, headers: Mapping[str, str], body: Slice | None, sink: Sink | None
    ) -> Answer:
        again = self._open is not None
        try:
            connection = self._connected()
            connection.putrequest(method, self._target(path), skip_accept_encoding=True)
            length = {} if body is None else {"Content-Length": str(body.length)}
            closing = {"Connection": "close"} if self._closes else {}
            for name, value in {**self._standing, **headers, **length, **closing}.items():
                connection.putheader(name, value)
            connection.endheaders()
            if body is not None:
                self._send(connection, body)
            answer = self._receive(connection, sink)
            if again:
                self._lost = 0
            elif self._closes:
                self.close()
            return answer
        except (OSError, http.client.HTTPException) as error:
            self.close()
            self._lost += again
            raise LineBrokenError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from error
        except BaseException:
            self.close()  # in the middle of something
            raise

    def close(self) -> None:
        connection, self._open = self._open, None
        if connection is not None:
            if connection.sock is not None:
                with contextlib.suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)
            connection.close()

    @property
    def _closes(self) -> bool:
        """Whether every request gets a connection of its own."""
        return self._lost >= LOST_BEFORE_CLOSING

    # -- the connection -----------------------------------------------------------------------------------------------

    def _connected(self) -> http.client.HTTPConnection:
        if self._open is None:
            self._open = self._connect()
        return self._open

    def _connect(self) -> http.client.HTTPConnection:
        at, secure = self._proxy or self._url, self._url.scheme == "https"
        host, port = at.hostname or "", at.port or (443 if secure and not self._proxy else 80)
        connection = (
            http.client.HTTPSConnection(host, port, timeout=timeouts.CONNECT_S, context=self._lines.tls)
            if secure
            else http.client.HTTPConnection(host, port, timeout=timeouts.CONNECT_S)
        )
        if secure and self._proxy:
            connection.set_tunnel(self._url.hostname or "", self._url.port or 443, _proxy_authorization(self._proxy))
        connection.connect()
        connection.sock.settimeout(timeouts.REQUEST_S)
        prefer_bbr(connection.sock)
        return connection

    @cached_property
    def _standing(self) -> dict[str, str]:
        """Headers of every request. Blobs are compressed by no one: a length of compressed bytes would say nothing about
        ranges."""
        standing = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity"}
        if self._url.username is not None:
            standing["Authorization"] = _basic(self._url)
        if self._proxy and self._url.scheme == "http":
            standing |= _proxy_authorization(self._proxy)
        return standing

    def _target(self, path: str) -> str:
        path = self._url.path + path
        if self._proxy is None or self._url.scheme == "https":
            return path
        host = self._url.netloc.rpartition("@")[2]
        return f"http://{host}{path}"

    # -- bodies ---------------------------------------------------------------------------------------------------------

    def _send(self, connection: http.client.HTTPConnection, body: Slice) -> None:
        try:
            with body.path.open("rb") as file:
                _send_slice(connection.sock, file, body)
        except (BrokenPipeError, ConnectionResetError):
            # A server that does not want the body says so and closes; its word is the better reason.
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_WR)

    def _receive(self, connection: http.client.HTTPConnection, sink: Sink | None) -> Answer:
        link = connection.sock  # which the connection forgets when the answer is its last one
        if link is None:
            raise http.client.NotConnected("closed from another thread")
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        answer = Answer(response.status, response.reason, headers)
        if sink is not None and sink.begin(answer):
            left = self._pour_buffered(response, sink)
            if isinstance(link, ssl.SSLSocket):
                self._pour(response, left, sink)
            else:
                _move(link, left, sink)
            response.close()
        else:
            body = response.read(LARGEST_ANSWER)
            if response.length and len(body) < LARGEST_ANSWER:
                raise http.client.IncompleteRead(body, response.length)
            answer = Answer(answer.status, answer.reason, headers, body)
            if not response.isclosed():
                self.close()
        if response.will_close:
            self.close()
        return answer

    def _pour_buffered(self, response: http.client.HTTPResponse, sink: Sink) -> int:
        """Gives the sink what came with the head and a bit more, and leaves nothing in the response's own buffer; bytes that are left
        in the connection."""
        left = response.length or 0
        if left and (count := response.fp.readinto1(self._buffer[:left])):
            sink.write(self._buffer[:count])
            left -= count
        return left

    def _pour(self, response: http.client.HTTPResponse, left: int, sink: Sink) -> None:
        filled = 0
        try:
            while left:
                count = response.fp.readinto1(self._buffer[filled : filled + left])
                if not count:
                    raise http.client.IncompleteRead(b"", left)
                filled, left = filled + count, left - count
                if filled == len(self._buffer):
                    filled = 0
                    sink.write(self._buffer)
        finally:
            if filled:
                sink.write(self._buffer[:filled])


def _move(link: socket.socket, left: int, sink: Sink) -> None:
    """Has the sink take a body off a plain connection.

    Raises:
        OSError, IncompleteRead: the connection broke, or was silent for too long.
    """
    # Under a descriptor of its own: this one stays what it is when another thread closes the line.
    with link.dup() as connection:
        connection.setblocking(False)  # as it is below Python, where the line's patience is
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        while left:
            let_wait(connection, left)
            worth_taking = poll.poll(1000 * timeouts.REQUEST_S)
            moved = sink.receive(connection, left)
            if not (worth_taking or moved.received):
                raise TimeoutError("timed out")
            left -= moved.received
            if moved.connection_error:
                raise system_error(moved.connection_error)
            if moved.ended and left:
                raise http.client.IncompleteRead(b"", left)
        wait_no_more(connection)


def _send_slice(connection: socket.socket, file: BinaryIO, body: Slice) -> None:
    offset, left = body.offset, body.length
    while left:
        # sendfile(2) by way of the socket's method, which waits where the system call would say EAGAIN.
        sent = connection.sendfile(file, offset, min(left, SEND_BYTES))
        if not sent:
            raise IntegrityError(
                "The file became shorter while it was sent.", "nothing may write to the spool directory"
            )
        offset, left = offset + sent, left - sent
        body.sent(sent)


def proxy_for(url: SplitResult) -> SplitResult | None:
    """The forward proxy that the environment names for an address.

    Raises:
        UsageError: it names one that is not spoken to by HTTP.
    """
    proxies = getproxies()
    named = proxies.get(url.scheme) or proxies.get("all")
    if not named or proxy_bypass(url.netloc.rpartition("@")[2]):
        return None
    proxy = urlsplit(named if "//" in named else f"http://{named}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise UsageError(
            f"Expected a proxy at http://HOST:PORT, found {proxy.scheme}://{proxy.hostname} in the environment.",
            "set HTTP_PROXY and HTTPS_PROXY to an HTTP proxy, or NO_PROXY to the coordinator's host",
        )
    return proxy


def _proxy_authorization(proxy: SplitResult) -> dict[str, str]:
    return {} if proxy.username is None else {"Proxy-Authorization": _basic(proxy)}


def _basic(address: SplitResult) -> str:
    pair = f"{unquote(address.username or '')}:{unquote(address.password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode("ascii")
