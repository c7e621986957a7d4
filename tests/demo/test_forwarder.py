"""The lines between sites and coordinator: they pass, refuse, reset, and swallow."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from crosstrain.demo.chaos.forwarder import HOST, Network
from crosstrain.wire.listening import listen

PATIENCE_S = 20.0
SHORT_S = 0.3


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that sends back what it gets; its port."""
    listener = listen(HOST, 0)
    stopping = threading.Event()

    def serve() -> None:
        while not stopping.is_set():
            connection, _ = listener.accept()
            threads.append(threading.Thread(target=answer, args=(connection,)))
            threads[-1].start()

    def answer(connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(1 << 16):
                    connection.sendall(data)
            except OSError:
                return

    threads = [threading.Thread(target=serve)]
    threads[0].start()
    yield int(listener.getsockname()[1])
    stopping.set()
    socket.create_connection((HOST, listener.getsockname()[1])).close()
    for thread in threads:
        thread.join(PATIENCE_S)
    listener.close()


@pytest.fixture
def network(echo: int) -> Iterator[Network]:
    with Network(("alpha", "beta"), echo) as network:
        yield network


def call(network: Network, name: str = "alpha") -> socket.socket:
    connection = socket.create_connection((HOST, network.port(name)))
    connection.settimeout(PATIENCE_S)
    return connection


def exchange(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    answer = b""
    while len(answer) < len(data):
        piece = connection.recv(1 << 16)
        if not piece:
            break
        answer += piece
    return answer


def broken(action: Callable[[], object]) -> bool:
    try:
        return action() == b""
    except ConnectionError:
        return True


def test_bytes_pass_both_ways_and_a_farewell_too(network: Network) -> None:
    data = bytes(range(256)) * 4000
    with call(network) as connection:
        sender = threading.Thread(target=lambda: (connection.sendall(data), connection.shutdown(socket.SHUT_WR)))
        sender.start()
        received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        sender.join()
    assert received == data


def test_a_cut_resets_what_is_open_and_what_is_new_until_it_is_healed(network: Network) -> None:
    with call(network) as connection, call(network, "beta") as other:
        assert exchange(connection, b"one") == exchange(other, b"one") == b"one"
        network.cut("alpha")
        assert broken(lambda: connection.recv(1))
        with call(network) as late:
            assert broken(lambda: exchange(late, b"two"))
        assert exchange(other, b"two") == b"two"
        network.heal("alpha")
        with call(network) as again:
            assert exchange(again, b"three") == b"three"


def test_a_reset_ends_the_connections_of_the_moment_only(network: Network) -> None:
    with call(network) as connection:
        assert exchange(connection, b"one") == b"one"
        network.reset("alpha")
        assert broken(lambda: connection.recv(1))
    with call(network) as connection:
        assert exchange(connection, b"two") == b"two"


def test_what_was_swallowed_arrives_when_the_line_is_healed(network: Network) -> None:
    with call(network) as connection:
        assert exchange(connection, b"one") == b"one"
        network.swallow("alpha")
        connection.sendall(b"two")
        connection.settimeout(SHORT_S)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        with call(network) as late:
            late.sendall(b"late")
            late.settimeout(SHORT_S)
            with pytest.raises(TimeoutError):
                late.recv(1)
            late.settimeout(PATIENCE_S)
            connection.settimeout(PATIENCE_S)
            network.heal("alpha")
            assert connection.recv(3) == b"two"
            assert late.recv(4) == b"late"


def test_a_cut_ends_what_was_swallowed(network: Network) -> None:
    with call(network) as connection:
        assert exchange(connection, b"one") == b"one"
        network.swallow("alpha")
        connection.sendall(b"two")
        network.cut("alpha")
        assert broken(lambda: connection.recv(1))


def test_a_coordinator_that_is_away_ends_the_connection() -> None:
    with listen(HOST, 0) as unused:
        port = unused.getsockname()[1]
    with Network(("alpha",), port) as network, call(network) as connection:
        assert broken(lambda: exchange(connection, b"one"))


def test_open_connections_do_not_keep_the_network_from_closing(echo: int) -> None:
    with Network(("alpha",), echo) as network:
        connection, waiting = call(network), call(network)
        assert exchange(connection, b"one") == b"one"
        network.swallow("alpha")
        connection.sendall(b"two")
    with connection, waiting:
        assert broken(lambda: connection.recv(1))
