"""Durable steps that can fail: the production database, object store and spool, with a place before and after each write.

A crash between any two writes is what `Steps` makes: it counts down the durable steps of one process and then calls for
its end, before the write or right after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine

from crosstrain.domain.ids import Digest
from crosstrain.errors import EnvironmentFault
from crosstrain.site.spool import Note, Spool
from crosstrain.storage.database import Database
from crosstrain.storage.object_store import LocalObjectStore


class Steps:
    """Counts the durable steps of one process.

    Args:
        end: ends the process; must raise.
    """

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end
        self._left: int | None = None

    def crash_after(self, steps: int) -> None:
        """Ends the process after that many more half-steps: an even number ends before a write, an odd one after it."""
        self._left = steps

    @contextmanager
    def step(self) -> Iterator[None]:
        self._half()
        yield
        self._half()

    def _half(self) -> None:
        if self._left is None:
            return
        if self._left == 0:
            self._left = None
            self._end()
        else:
            self._left -= 1


def _changes(connection: Connection) -> int:
    """Rows that this connection ever changed."""
    return int(connection.connection.driver_connection.total_changes)  # type: ignore[union-attr]


class SteppedDatabase(Database):
    """Args:
    committed: called after every commit that changed something.
    """

    def __init__(self, engine: Engine, steps: Steps, committed: Callable[[], None]) -> None:
        super().__init__(engine)
        self._steps = steps
        self._committed = committed

    @contextmanager
    def write(self) -> Iterator[Connection]:
        with self._steps.step():
            with super().write() as connection:
                before = _changes(connection)
                yield connection
                changed = _changes(connection) > before
            if changed:
                self._committed()


class SteppedObjects(LocalObjectStore):
    """Args:
    full: whether the disk is full right now.
    """

    def __init__(self, directory: Path, steps: Steps, full: Callable[[], bool]) -> None:
        super().__init__(directory)
        self._steps = steps
        self._full = full

    def adopt(self, path: Path, digest: Digest | None = None) -> Digest:
        self._require_space()
        with self._steps.step():
            return super().adopt(path, digest)

    def receive(self, digest: Digest, offset: int, chunks: Iterable[bytes], total: int) -> int:
        self._require_space()
        with self._steps.step():
            return super().receive(digest, offset, chunks, total)

    def delete(self, digest: Digest) -> None:
        with self._steps.step():
            super().delete(digest)

    def _require_space(self) -> None:
        if self._full():
            raise EnvironmentFault("The disk is full.", "free some space")


class SteppedSpool(Spool):
    """The note is what a site must not lose."""

    def __init__(self, directory: Path, spec_digest: str, steps: Steps) -> None:
        self._steps = steps
        super().__init__(directory, spec_digest)

    def write(self, note: Note) -> None:
        with self._steps.step():
            super().write(note)
