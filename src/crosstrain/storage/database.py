"""One SQL database, one writer.

Every write transaction starts by checking the coordinator's term: a process that was superseded (a second coordinator was
started on the same database) cannot write any more, whatever it believes.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event, select, update
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool, StaticPool

from crosstrain.errors import EnvironmentFault, IntegrityError, Superseded
from crosstrain.storage import schema

NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "smb3", "ceph", "fuse.sshfs", "panfs", "wekafs", "afs"}
)


_TERM = select(schema.run.c.term)


class Database:
    """Connections and transactions; the stores beside this file hold the statements."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writer = threading.Lock()
        self._term: int | None = None

    @property
    def term(self) -> int | None:
        """The fencing number this process writes with, None before `take_over`."""
        return self._term

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent snapshot."""
        with self._engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that commits on success and leaves nothing on an exception.

        Raises:
            Superseded: another coordinator took this database over.
            EnvironmentFault: the disk is full or the file became read-only.
        """
        with (
            self._writer,
            _storage_faults(),
            self._engine.connect().execution_options(writes=True) as connection,
            connection.begin(),
        ):
            if self._term is not None:
                stored = connection.execute(_TERM).scalar()
                if stored != self._term:
                    raise Superseded(
                        f"This coordinator writes with term {self._term}, the database is at term {stored}.",
                        "another coordinator serves this run now; stop this one",
                    )
            yield connection

    def take_over(self) -> int:
        """Becomes the one writer; coordinators started before can no longer write."""
        self._term = None
        with self.write() as connection:
            connection.execute(update(schema.run).values(term=schema.run.c.term + 1))
            term = connection.execute(_TERM).scalar_one()
        self._term = int(term)
        return self._term

    def close(self) -> None:
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
        connect = partial(sqlite3.connect, target, uri=True, timeout=30, check_same_thread=False)
        engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool)
    event.listen(engine, "connect", _configure_read_only if read_only else _configure)
    event.listen(engine, "begin", _begin_read_only if read_only else _begin)
    try:
        if not read_only:
            with engine.connect() as connection, connection.begin():
                schema.metadata.create_all(connection)
        with engine.connect() as connection, connection.begin():
            found = connection.execute(select(schema.run.c.schema_version)).scalar()
    except OperationalError as error:
        engine.dispose()
        raise EnvironmentFault(
            f"The database {path} cannot be opened: {error.orig}.",
            "the coordinator's directory must exist, be writable and have free space",
        ) from error
    except DatabaseError as error:
        engine.dispose()
        raise IntegrityError(
            f"{path} is not a crosstrain database: {error.orig}.", "choose another directory, or restore the file"
        ) from error
    if found not in (None, schema.SCHEMA_VERSION):
        engine.dispose()
        raise IntegrityError(
            f"{path} has schema version {found}, this crosstrain needs {schema.SCHEMA_VERSION}.",
            "use the crosstrain version that began the run",
        )
    return engine


def refuse_network_file_system(directory: Path, mounts: Path = Path("/proc/mounts")) -> None:
    """SQLite's locks and WAL are unsafe on network file systems; refuse them with the reason.

    Raises:
        EnvironmentFault: `directory` is on NFS, Lustre, GPFS or the like.
    """
    if not mounts.exists():
        return
    resolved = str(directory.resolve())
    best = ("", "")
    for line in mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        _, mount_point, kind, *_ = line.split(" ")
        mount_point = mount_point.replace("\\040", " ")
        inside = resolved == mount_point or resolved.startswith(mount_point.rstrip("/") + "/")
        if inside and len(mount_point) >= len(best[0]):
            best = (mount_point, kind)
    if best[1] in NETWORK_FILE_SYSTEMS:
        raise EnvironmentFault(
            f"{directory} is on {best[1]} (mounted at {best[0]}), where SQLite can lose committed data.",
            "put `coordinator.dir` on a local disk",
        )


@contextmanager
def _storage_faults() -> Iterator[None]:
    try:
        yield
    except OperationalError as error:
        raise EnvironmentFault(
            f"The database cannot be written: {error.orig}.",
            "free disk space or restore the permissions of `coordinator.dir`; nothing was lost",
        ) from error


def _configure(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    _configure_read_only(connection, _entry)
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _configure_read_only(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    # The driver's own transaction handling would begin too late for BEGIN IMMEDIATE.
    connection.isolation_level = None


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("writes") else "BEGIN")


def _begin_read_only(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")
