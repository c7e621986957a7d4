"""Connections between two ends of one test."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from crosstrain.pieces import Moved
from crosstrain.wire.listening import listen


def rest_of(connection: socket.socket) -> bytes:
    """What comes until the end."""
    connection.settimeout(PATIENCE_S)
    with connection.makefile("rb") as file:
        return file.read()


@contextmanager
def tcp_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a TCP connection on loopback."""
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()) as one:
        other, _ = listener.accept()
        with other:
            yield one, other


PATIENCE_S = 20.0


def take(connection: socket.socket, count: int, receive: Callable[[int], Moved]) -> Moved:
    """All that becomes of so many bytes, or of those before the end: `receive(done)` takes what there is behind the first ones."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    whole = Moved()
    while whole.received < count and not (whole.ended or whole.file_error):
        if whole.dry:
            assert poll.poll(1000 * PATIENCE_S), "nothing more comes"
        moved = receive(whole.received)
        whole = replace(moved, received=whole.received + moved.received, written=whole.written + moved.written)
    return whole


@contextmanager
def bringing(data: bytes, *, ends: bool = False) -> Iterator[socket.socket]:
    """A connection on which so much comes, and then nothing, or its end; it does not block."""
    with tcp_pair() as (one, other):

        def send() -> None:
            with contextlib.suppress(OSError):  # nobody has to take all of it
                one.sendall(data)
                if ends:
                    one.shutdown(socket.SHUT_WR)

        other.setblocking(False)
        sender = threading.Thread(target=send)
        sender.start()
        try:
            yield other
        finally:
            other.shutdown(socket.SHUT_RDWR)
            other.close()
            sender.join()
