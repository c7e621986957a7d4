"""Connections between two ends of one test."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from crosstrain.wire.listening import listen


@contextmanager
def tcp_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a TCP connection on loopback."""
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()) as one:
        other, _ = listener.accept()
        with other:
            yield one, other


@contextmanager
def bringing(data: bytes, *, ends: bool = False) -> Iterator[socket.socket]:
    """A connection on which so much comes, and then nothing, or its end."""
    with tcp_pair() as (one, other):

        def send() -> None:
            with contextlib.suppress(OSError):  # nobody has to take all of it
                one.sendall(data)
                if ends:
                    one.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        try:
            yield other
        finally:
            other.shutdown(socket.SHUT_RDWR)
            other.close()
            sender.join()
