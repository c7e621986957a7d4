"""A run's database on a PostgreSQL server.

The locks are those of SQLite, in other words: a write transaction locks the table `run` before its snapshot is taken, as
BEGIN IMMEDIATE locks the file, so writers go one after another and each sees what the one before it left. A password in
the address is never shown.
"""

from __future__ import annotations

from sqlalchemy import URL, Connection, Engine, TextClause, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DatabaseError, OperationalError

from crosstrain.domain import timeouts
from crosstrain.errors import EnvironmentFault, UsageError
from crosstrain.storage.database import Database
from crosstrain.storage.database_faults import disposed_on_error, one_line, storage_faults
from crosstrain.storage.tables import prepare

_NETWORK = {
    "connect_timeout": f"{timeouts.DATABASE_CONNECT_S:.0f}",
    "keepalives_idle": f"{timeouts.DATABASE_PROBE_S:.0f}",
    "keepalives_interval": f"{timeouts.DATABASE_PROBE_AGAIN_S:.0f}",
    "keepalives_count": "3",
    "tcp_user_timeout": f"{1000 * timeouts.DATABASE_SILENT_S:.0f}",
    "application_name": "crosstrain",
}
"""A server that vanished is noticed within half a minute; parameters in the address take precedence."""

# One message, and utility statements only: the transaction's snapshot is taken by the first query after the lock.
_BEGIN_WRITE = (
    f"SET LOCAL idle_in_transaction_session_timeout = '{timeouts.WRITER_SILENT_S:.0f}s'; "
    f"SET LOCAL lock_timeout = '{timeouts.DATABASE_LOCK_S:.0f}s'; "
    "LOCK TABLE run IN EXCLUSIVE MODE"
)
_KEY = "(to_regclass('run')::oid::bigint << 32) + :term"
_TAKE = text(f"SELECT pg_try_advisory_lock({_KEY})")
_RELEASE = text(f"SELECT pg_advisory_unlock({_KEY})")
_STILL_THERE = text("SELECT 1")


def open_postgres(address: str, *, read_only: bool = False) -> Database:
    """Opens a run's database on a server; errors as of `postgres_engine`."""
    return Database(postgres_engine(address, read_only=read_only))


def postgres_engine(address: str, *, read_only: bool = False) -> Engine:
    """Connections to a PostgreSQL database with its tables made.

    Args:
        address: for example postgresql://crosstrain@db.example.org/run; libpq's parameters may follow a question mark.

    Raises:
        UsageError: not such an address, or its schema does not exist.
        EnvironmentFault: the driver is missing, or the server cannot be reached or refuses.
        IntegrityError: the database holds something else, or a run of another schema version.
    """
    url = _url(address)
    try:
        engine = create_engine(
            url,
            isolation_level="REPEATABLE READ",
            connect_args={name: value for name, value in _NETWORK.items() if name not in url.query},
            execution_options={"postgresql_readonly": read_only},
        )
    except ImportError as error:
        raise EnvironmentFault(
            "The driver for PostgreSQL is not installed.", "pip install 'crosstrain[postgres]'"
        ) from error
    event.listen(engine, "begin", _begin)
    with disposed_on_error(engine):
        try:
            # Each statement here must see what was committed before it, hence the lower isolation.
            with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection, connection.begin():
                _prepare(connection, shown(url), create=not read_only)
        except OperationalError as error:
            raise EnvironmentFault(
                f"The database {shown(url)} cannot be reached: {one_line(error)}.",
                "see that its server runs and that `coordinator.database` and the server's pg_hba.conf are right",
            ) from None
        except DatabaseError as error:
            raise EnvironmentFault(
                f"The database {shown(url)} cannot be used: {one_line(error)}.",
                "the role must own the database, or be allowed to create tables in its schema",
            ) from None
    return engine


def shown(url: URL) -> str:
    """The address for people: neither password nor parameters."""
    host = url.host or url.query.get("host", "")
    port = f":{url.port}" if url.port else ""
    user = f"{url.username}@" if url.username else ""
    return f"postgresql://{user}{host}{port}/{url.database or ''}"


def _url(address: str) -> URL:
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        url = None
    if url is None or url.drivername not in ("postgresql", "postgresql+psycopg"):
        # The address is not repeated: it may hold a password.
        raise UsageError(
            "`coordinator.database` is not an address that begins with postgresql://.",
            'for example "postgresql://crosstrain@db.example.org/run"; leave it out for SQLite',
        )
    return url.set(drivername="postgresql+psycopg")


def _prepare(connection: Connection, name: str, *, create: bool) -> None:
    schema = connection.exec_driver_sql("SELECT current_schema()").scalar()
    if schema is None:
        raise UsageError(
            f"The schema that the address of {name} asks for does not exist.", "make it with CREATE SCHEMA"
        )
    if create:
        # Two coordinators may be started at once.
        connection.execute(
            text("SELECT pg_advisory_xact_lock(hashtext('crosstrain'), hashtext(:schema))"), {"schema": schema}
        )
    prepare(connection, f"{name}, schema {schema},", create=create)


def _begin(connection: Connection) -> None:
    if connection.get_execution_options().get("writes"):
        connection.exec_driver_sql(_BEGIN_WRITE)


class PostgresTermLock:
    """Advisory locks of one connection, keyed by the run's table and the term; the server frees them when the connection
    ends, as it does when the process dies."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None
        self._held: set[int] = set()

    def take(self, term: int) -> bool:
        if term in self._held and self._ask(_STILL_THERE):
            return True
        taken = self._ask(_TAKE, term=term)
        if taken:
            self._held.add(term)
        return taken

    def release(self, term: int) -> None:
        if term in self._held:
            self._held.discard(term)
            self._ask(_RELEASE, term=term)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._held.clear()
        if connection is not None:
            connection.close()

    def _ask(self, question: TextClause, **parameters: int) -> bool:
        try:
            with storage_faults(self._engine):
                if self._connection is None:
                    # Not one of the pool: its locks must end with it.
                    self._connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
                    self._connection.detach()
                return bool(self._connection.execute(question, parameters).scalar())
        except EnvironmentFault:
            self._drop()
            raise

    def _drop(self) -> None:
        """Forgets a connection that does not work any more, and the locks it had."""
        connection, self._connection = self._connection, None
        self._held.clear()
        if connection is not None:
            connection.invalidate()
            connection.close()
