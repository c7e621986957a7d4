"""The databases that one suite runs on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.postgres import Server

from crosstrain.storage.database import Database, open_sqlite
from crosstrain.storage.postgres import open_postgres

KINDS = ("sqlite-memory", "sqlite-file", "postgres")
SHARED = ("sqlite-file", "postgres")
"""Those that several processes can open."""


class Backend:
    """One place for one run's database; it starts empty.

    Args:
        connect: opens it; in memory each call is a place of its own.
    """

    def __init__(self, connect: Callable[[bool], Database]) -> None:
        self._connect = connect
        self._opened: list[Database] = []

    def open(self, *, read_only: bool = False) -> Database:
        """What a process has of it; closed with the backend at the latest."""
        opened = self._connect(read_only)
        self._opened.append(opened)
        return opened

    def close(self) -> None:
        for opened in self._opened:
            opened.close()


@contextmanager
def backends(kind: str, directory: Path, server: Callable[[], Server]) -> Iterator[Callable[[], Backend]]:
    """Makes places for databases of a kind; all are closed at the end."""
    numbers, made = itertools.count(1), []

    def connector() -> Callable[[bool], Database]:
        match kind:
            case "sqlite-memory":
                return lambda _read_only: open_sqlite(None)
            case "sqlite-file":
                path = directory / f"run-{next(numbers)}.sqlite"
                return lambda read_only: open_sqlite(path, read_only=read_only)
            case _:
                address = server().fresh()
                return lambda read_only: open_postgres(address, read_only=read_only)

    def make() -> Backend:
        made.append(Backend(connector()))
        return made[-1]

    try:
        yield make
    finally:
        for backend in made:
            backend.close()
