"""What transfers need of a connection: one request after the other, bodies that go to and come from files."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from crosstrain.pieces import Moved


class LineBrokenError(Exception):
    """No answer, or not all of it; another attempt may get one."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The head of a response, and its body unless a sink took it.

    Attributes:
        headers: names in lower case.
    """

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Slice:
    """The body of a request: bytes of a file.

    Attributes:
        sent: called with the number of bytes that left, now and then.
    """

    path: Path
    offset: int
    length: int
    sent: Callable[[int], None]


class Sink(Protocol):
    """Where the body of a response goes."""

    def begin(self, answer: Answer) -> bool:
        """Whether to pour the body in; else it is small and belongs to the answer. What it raises ends the request."""
        ...

    def write(self, data: memoryview) -> None:
        """The next bytes. Those that came before a line breaks are written too."""
        ...

    def receive(self, connection: socket.socket, count: int) -> Moved:
        """The next bytes that have come on a plain connection, at most `count` of them; those that came count, whatever came of them
        else."""
        ...


class Line(Protocol):
    """A connection to one address, made when it is needed; used by one thread at a time."""

    def request(
        self, method: str, path: str, headers: Mapping[str, str], body: Slice | None, sink: Sink | None
    ) -> Answer:
        """Sends a request and receives the answer, whatever its status.

        Raises:
            LineBrokenError: see there.
            IntegrityError: the file of `body` became shorter.
        """
        ...

    def close(self) -> None:
        """Ends the connection; the next request makes a new one. From another thread it breaks the request under way."""
        ...
