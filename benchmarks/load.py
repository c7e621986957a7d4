"""Clients that cost as little as they can: prepared bytes out on kept-alive connections, answers counted and not decoded."""

from __future__ import annotations

import json
import select
import socket
import statistics
import time
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Self

PROCESSES = 2
CONNECTIONS = 8
"""Of each process; each has one request on its way at a time."""
CLIENTS = PROCESSES * CONNECTIONS


def request(path: str, document: dict[str, Any]) -> bytes:
    """The bytes of a POST."""
    body = json.dumps(document).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: coordinator\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Line:
    """One kept-alive connection with at most one request on its way."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes | None:
        """The answer's body once it is whole."""
        chunk = self.socket.recv(65536)
        if not chunk:
            raise ConnectionError(f"the server closed the connection after {self._received!r}")
        self._received += chunk
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found:
            return None
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return None
        if not head.startswith(b"HTTP/1.1 200"):
            raise ConnectionError(self._received.decode())
        self._received = b""
        return body


def exchange(port: int, requests: Sequence[bytes], seconds: float | None) -> tuple[int, float, list[bytes]]:
    """Sends the requests once, or over and over for `seconds`, always one on each line.

    Returns:
        Number of answers, seconds taken, and the bodies of the answers if every request was sent once.
    """
    lines = {line.socket.fileno(): line for line in (Line(port) for _ in range(CONNECTIONS))}
    poll = select.epoll()
    for number in lines:
        poll.register(number, select.EPOLLIN)
    sent = answered = 0
    bodies: list[bytes] = []
    begun = time.perf_counter()
    goal = len(requests) if seconds is None else None
    for line in list(lines.values())[: len(requests)]:
        line.send(requests[sent % len(requests)])
        sent += 1
    while answered < sent:
        for number, _ in poll.poll():
            body = lines[number].receive()
            if body is None:
                continue
            answered += 1
            if goal is not None:
                bodies.append(body)
            if sent < goal if goal is not None else time.perf_counter() - begun < (seconds or 0):
                lines[number].send(requests[sent % len(requests)])
                sent += 1
    taken = time.perf_counter() - begun
    poll.close()
    for line in lines.values():
        line.socket.close()
    return answered, taken, bodies


def timed(port: int, requests: Sequence[bytes], rate: float, seconds: float) -> list[float]:
    """Sends on time whatever the answers do; milliseconds from when each request was due to its answer."""
    lines = [Line(port) for _ in range(64)]
    by_number = {line.socket.fileno(): index for index, line in enumerate(lines)}
    due_of: list[float | None] = [None] * len(lines)
    poll = select.epoll()
    for number in by_number:
        poll.register(number, select.EPOLLIN)
    waits: list[float] = []
    begun, sent, goal = time.perf_counter(), 0, round(rate * seconds)
    while len(waits) < goal:
        now = time.perf_counter()
        due = begun + sent / rate
        free = next((index for index, at in enumerate(due_of) if at is None), None)
        if sent < goal and now >= due and free is not None:
            due_of[free] = due
            lines[free].send(requests[sent % len(requests)])
            sent += 1
            continue
        for number, _ in poll.poll(max(0.0, due - now) if sent < goal else 1.0):
            index = by_number[number]
            if lines[index].receive() is not None:
                waits.append(1000 * (time.perf_counter() - (due_of[index] or 0)))
                due_of[index] = None
    for line in lines:
        line.socket.close()
    return waits


class Load:
    """Client processes that wait for work."""

    def __enter__(self) -> Self:
        context = get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes = []
        for _ in range(PROCESSES):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)
        return self

    def __exit__(self, *_: object) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.send(None)
            process.join()

    def rate(self, port: int, requests: Sequence[bytes], seconds: float) -> float:
        """Answers per second to the requests, sent over and over."""
        return sum(count / taken for count, taken, _ in self._all(port, requests, seconds))

    def once(self, port: int, requests: Sequence[bytes]) -> tuple[float, list[bytes]]:
        """Sends each request once; answers per second, and their bodies."""
        found = self._all(port, requests, None)
        return len(requests) / max(taken for _, taken, _ in found), [body for _, _, bodies in found for body in bodies]

    def open_loop(self, port: int, requests: Sequence[bytes], rate: float, seconds: float) -> list[float]:
        self._pipes[0].send(("timed", port, requests, rate, seconds))
        waits: list[float] = self._pipes[0].recv()
        return waits

    def _all(self, port: int, requests: Sequence[bytes], seconds: float | None) -> list[tuple[int, float, list[bytes]]]:
        for index, pipe in enumerate(self._pipes):
            pipe.send(("exchange", port, requests[index :: len(self._pipes)], seconds))
        return [pipe.recv() for pipe in self._pipes]


def _serve(pipe: Connection) -> None:
    while (order := pipe.recv()) is not None:
        kind, *arguments = order
        pipe.send(timed(*arguments) if kind == "timed" else exchange(*arguments))


def spread(name: str, values: Sequence[float]) -> dict[str, float]:
    """A median under its name, and the quartiles."""
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return {name: middle, f"{name}_low": low, f"{name}_high": high}
