"""One SQL database, one writer.

Every write transaction starts by checking the coordinator's term: a process that was superseded (a second coordinator was
started on the same database) cannot write any more, whatever it believes.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event, select, text, update
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool, StaticPool

from crosstrain.domain.timeouts import DATABASE_LOCK_S
from crosstrain.errors import EnvironmentFault, IntegrityError, Superseded
from crosstrain.storage import schema
from crosstrain.storage.database_faults import disposed_on_error, is_fault, storage_faults
from crosstrain.storage.file_system import refuse_network_file_system
from crosstrain.storage.prepared import Prepared, Row
from crosstrain.storage.pulse import Claim, pulse
from crosstrain.storage.tables import prepare

REMEMBERED = 100_000
"""Rows that lookups keep at most between two commits; there is one for each session and the lease it names."""

_TERM = Prepared(select(schema.run.c.term))
_BEGIN = Prepared(text("BEGIN"))
_BEGIN_IMMEDIATE = Prepared(text("BEGIN IMMEDIATE"))
_SAVEPOINT = Prepared(text("SAVEPOINT member"))
_RELEASE = Prepared(text("RELEASE SAVEPOINT member"))
_UNDO = Prepared(text("ROLLBACK TO SAVEPOINT member"))


T = TypeVar("T")
Work = Callable[[Connection], T]
"""What is done in a write transaction."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What became of one piece of work among several."""

    value: T | None = None
    error: Exception | None = None


class Database:
    """Connections and transactions; the stores beside this file hold the statements."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.is_local = engine.dialect.name == "sqlite"
        """Whether a lookup waits for no other machine, and never for a writer."""
        self._writer = threading.Lock()
        self._next_writer = threading.Lock()
        self._looking = threading.Lock()
        self._lookups: Connection | None = None
        self._found: dict[tuple[Any, ...], Row | None] = {}
        self._kept: Connection | None = None
        self._term: int | None = None

    @property
    def term(self) -> int | None:
        """The fencing number this process writes with, None before `take_over`."""
        return self._term

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent snapshot.

        Raises:
            EnvironmentFault: the database cannot be read.
        """
        with storage_faults(self._engine), self._engine.connect() as connection, connection.begin():
            yield connection

    def lookup(self, statement: Prepared, **parameters: Any) -> Row | None:
        """One row of what is committed. A single statement needs no transaction, and the connection kept for it no pool:
        that is most of what a heartbeat would cost.

        The one writer knows that nothing changes between two of its commits, and remembers what it found. Until a superseded
        one notices that it is, it answers as at the end of its term; it cannot write.

        Raises:
            EnvironmentFault: the database cannot be read.
        """
        key = (statement, *parameters.values())
        with self._looking, storage_faults(self._engine):
            if key in self._found:
                return self._found[key]
            connection = self._lookups or self._engine.connect()
            self._lookups = None
            try:
                if not self.is_local:  # SQLite's connections begin nothing by themselves
                    connection = connection.execution_options(isolation_level="AUTOCOMMIT")
                found = statement.first(connection, **parameters)
            except BaseException:
                connection.close()
                raise
            self._lookups = connection
            if self._term is not None and len(self._found) < REMEMBERED:
                self._found[key] = found
            return found

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that commits on success and leaves nothing on an exception. One runs at a time, whatever number of
        processes there are: each starts by taking the database's write lock, and only then looks.

        Raises:
            Superseded: another coordinator took this database over.
            EnvironmentFault: the disk is full, the file became read-only, or the server is gone.
        """
        with (
            self._turn(),
            storage_faults(self._engine),
            self._writing() as connection,
            self._forgetting(connection),
            connection.begin(),
        ):
            if self._term is not None:
                stored = _TERM.scalar(connection)
                if stored != self._term:
                    raise Superseded(
                        f"This coordinator writes with term {self._term}, the database is at term {stored}.",
                        "another coordinator serves this run now; stop this one",
                    )
            yield connection

    def write_all(self, works: Sequence[Work[T]]) -> list[Outcome[T]]:
        """Runs several pieces of work in one transaction, one after the other: they share its fsync and its fate.

        What one of them raises undoes that one alone; it is its outcome, and the others' work stays.

        Raises:
            Superseded, EnvironmentFault: as `write`; nothing of any of them was written.
        """
        with self.write() as connection:
            return [self._member(connection, work) for work in works]

    def _member(self, connection: Connection, work: Work[T]) -> Outcome[T]:
        _SAVEPOINT.execute(connection)
        try:
            outcome = Outcome(work(connection))
        except Exception as error:
            if is_fault(error):
                raise  # of the transaction, and so everybody's
            _UNDO.execute(connection)
            outcome = Outcome(error=error)
        _RELEASE.execute(connection)
        return outcome

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Writers go in turn: one that comes back at once must not overtake who waits."""
        with self._next_writer:
            self._writer.acquire()
        try:
            yield
        finally:
            self._writer.release()

    @contextmanager
    def _forgetting(self, connection: Connection) -> Iterator[None]:
        """Forgets what lookups found before a transaction that changes something, whatever became of it. Nobody was told of the
        commit yet; and the loop's transaction of every second seldom changes anything."""
        before = self._changes(connection)
        try:
            yield
        finally:
            if before is None or self._changes(connection) != before:
                with self._looking:
                    self._found = {}

    def _changes(self, connection: Connection) -> int | None:
        """How many rows the connection ever changed, None if the driver does not count them."""
        driver = connection.connection.driver_connection if self.is_local else None
        return None if driver is None else int(driver.total_changes)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """The connection for the next write, guarded by `_writer`. A file's is kept: it cannot break between two writes, and
        taking one from the pool and giving it back costs as much as a grant's statements."""
        connection = self._kept or self._engine.connect().execution_options(writes=True)
        self._kept = None
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if self.is_local:
            self._kept = connection
        else:
            connection.close()

    def take_over(self, claim: Claim | None = None) -> int:
        """Becomes the one writer; coordinators of other terms can no longer write.

        Args:
            claim: what was decided, by default the next term whatever the present one is.

        Raises:
            Superseded: the pulse that the claim was decided on moved.
        """
        self._term = None
        with self.write() as connection:
            found = pulse(connection)
            if claim is not None and found != claim.after:
                raise Superseded(
                    f"Term {claim.term} was to follow term {claim.after.term}, but a coordinator of term {found.term} lives.",
                    "it serves this run",
                )
            term = found.term + 1 if claim is None else claim.term
            connection.execute(update(schema.run).values(term=term))
        self._term = term
        return term

    def close(self) -> None:
        with self._looking, self._writer:
            for connection in (self._lookups, self._kept):
                if connection is not None:
                    connection.close()
            self._lookups = self._kept = None
        self._engine.dispose()


def open_sqlite(path: Path | None, *, read_only: bool = False) -> Database:
    """Opens (and makes) a SQLite database; errors as of `sqlite_engine`."""
    return Database(sqlite_engine(path, read_only=read_only))


def sqlite_engine(path: Path | None, *, read_only: bool = False) -> Engine:
    """Connections to a SQLite database with its tables made; None keeps it in memory.

    WAL with synchronous=FULL: a committed transaction survives power loss.

    Raises:
        EnvironmentFault: the directory is read-only, missing or on a network file system.
        IntegrityError: the file is no database, or of another schema version.
    """
    if path is None:
        engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    else:
        refuse_network_file_system(path.parent)
        # Not by a URL of SQLAlchemy's: it undoes the quoting, and a path with ? or # would name another file.
        target = f"file:{quote(str(path.absolute()))}?mode={'ro' if read_only else 'rwc'}"
        connect = partial(sqlite3.connect, target, uri=True, timeout=DATABASE_LOCK_S, check_same_thread=False)
        engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool)
    event.listen(engine, "connect", _configure_read_only if read_only else _configure)
    event.listen(engine, "begin", _begin_read_only if read_only else _begin)
    with disposed_on_error(engine):
        try:
            with engine.connect().execution_options(writes=not read_only) as connection, connection.begin():
                prepare(connection, str(path), create=not read_only)
        except OperationalError as error:
            raise EnvironmentFault(
                f"The database {path} cannot be opened: {error.orig}.",
                "the coordinator's directory must exist, be writable and have free space",
            ) from error
        except DatabaseError as error:
            raise IntegrityError(
                f"{path} is not a crosstrain database: {error.orig}.", "choose another directory, or restore the file"
            ) from error
    return engine


def _configure(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    _configure_read_only(connection, _entry)
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _configure_read_only(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    # The driver's own transaction handling would begin too late for BEGIN IMMEDIATE.
    connection.isolation_level = None


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes")
    (_BEGIN_IMMEDIATE if writes else _BEGIN).execute(connection)


def _begin_read_only(connection: Connection) -> None:
    _BEGIN.execute(connection)
