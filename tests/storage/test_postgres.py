"""What only a database on a server can do: be away, refuse, hold several runs, and end the transaction of who fell silent."""

from __future__ import annotations

import socket

import pytest
from tests.fakes import NOON
from tests.postgres import Server

from crosstrain.domain.ids import Instant
from crosstrain.domain.timeouts import WRITER_SILENT_S
from crosstrain.errors import CrosstrainError, EnvironmentFault, IntegrityError, UsageError
from crosstrain.storage import pulse, run_store
from crosstrain.storage.database import Database
from crosstrain.storage.postgres import open_postgres, postgres_engine
from crosstrain.storage.pulse import Pulse

NOW = Instant(NOON)
SECRET = "hunter2"


def begin(database: Database) -> None:
    with database.write() as connection:
        run_store.create(connection, "run", {}, "0" * 64, {}, NOW)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_server_that_is_not_there_is_named_with_a_hint() -> None:
    address = f"postgresql://someone:{SECRET}@127.0.0.1:{free_port()}/run"
    with pytest.raises(EnvironmentFault, match=r"someone@127.0.0.1:\d+/run cannot be reached: .*refused") as caught:
        open_postgres(address)
    assert "see that its server runs" in caught.value.hint


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://someone:{SECRET}@127.0.0.1:1/run",
        f"postgresql://someone@127.0.0.1:1/run?password={SECRET}",
        f"postgresql://someone:{SECRET}@127.0.0.1:port/run",
        f"postgresql://someone:{SECRET}@127.0.0.1:1/run?nonsense=1",
        f"mysql://someone:{SECRET}@127.0.0.1/run",
        f"someone:{SECRET}@127.0.0.1",
    ],
)
def test_password_is_in_no_error(address: str) -> None:
    with pytest.raises(CrosstrainError) as caught:
        open_postgres(address)
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in repr(error) + str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@pytest.mark.parametrize(
    "address", ["run.sqlite", "sqlite:///run", "postgresql+psycopg2://host/run", "http://host", "://"]
)
def test_address_of_another_kind_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match=r"not an address that begins with postgresql://"):
        open_postgres(address)


def test_database_and_schema_that_do_not_exist_are_named(postgres: Server) -> None:
    with pytest.raises(UsageError, match=r"schema that the address of postgresql://tester@.* asks for does not exist"):
        open_postgres(postgres.address(options="-csearch_path%3Dnowhere"))
    with pytest.raises(EnvironmentFault, match=r'database "none" does not exist'):
        open_postgres(postgres.address().replace("/postgres?", "/none?"))


def test_role_that_may_not_make_tables_is_told_so(postgres: Server) -> None:
    postgres.execute("CREATE ROLE guest LOGIN")
    address = postgres.fresh()
    schema = address.rpartition("%3D")[2]
    postgres.execute(f"GRANT USAGE ON SCHEMA {schema} TO guest")
    with pytest.raises(EnvironmentFault, match="cannot be used: permission denied for schema") as caught:
        open_postgres(address.replace("tester@", "guest@"))
    assert "allowed to create tables" in caught.value.hint


def test_runs_in_two_schemas_of_one_database_know_nothing_of_each_other(postgres: Server) -> None:
    first, second = open_postgres(postgres.fresh()), open_postgres(postgres.fresh())
    begin(first)
    assert first.take_over() == 1
    with first.write() as mine, second.read() as other:
        pulse.beat(mine)
        assert run_store.load(other) is None
    with first.write(), second.write() as connection:
        run_store.create(connection, "other", {}, "0" * 64, {}, NOW)
    first.close()
    second.close()


def test_connection_that_is_lost_is_a_fault_once_and_then_made_again(postgres: Server) -> None:
    database = open_postgres(postgres.fresh())
    begin(database)
    ours = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'crosstrain'"
    with (
        pytest.raises(EnvironmentFault, match=r"cannot be used: .*(terminat|closed)") as caught,
        database.write() as connection,
    ):
        pulse.beat(connection)
        assert postgres.execute(ours)
        pulse.beat(connection)
    assert "see that the server" in caught.value.hint
    with database.read() as connection:
        assert pulse.pulse(connection) == Pulse(0, 0)
    assert postgres.execute(ours)
    with pytest.raises(EnvironmentFault), database.read() as connection:
        pulse.pulse(connection)
    with database.write() as connection:
        pulse.beat(connection)
    database.close()


def test_write_of_a_process_that_falls_silent_is_given_up_by_the_server(postgres: Server) -> None:
    database = open_postgres(postgres.fresh())
    begin(database)
    with database.write() as connection:
        limit = connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar()
    assert limit == f"{WRITER_SILENT_S:g}s"
    with pytest.raises(EnvironmentFault, match="idle-in-transaction timeout"), database.write() as connection:
        pulse.beat(connection)
        connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = '20ms'")
        waiting = "SELECT count(*) FROM pg_locks WHERE mode = 'ExclusiveLock' AND relation = 'run'::regclass"
        schema = connection.exec_driver_sql("SELECT current_schema()").scalar()
        while postgres.execute(waiting.replace("'run'", f"'{schema}.run'")) != [(0,)]:
            pass
        pulse.beat(connection)
    with database.read() as connection:
        assert pulse.pulse(connection) == Pulse(0, 0)
    database.close()


def test_constraint_that_is_broken_is_a_bug_and_no_fault_of_the_server(postgres: Server) -> None:
    database = open_postgres(postgres.fresh())
    begin(database)
    with pytest.raises(Exception, match="duplicate key") as caught:
        begin(database)
    assert not isinstance(caught.value, CrosstrainError)
    database.close()


def test_database_of_a_newer_version_is_left_as_it_is(postgres: Server) -> None:
    engine = postgres_engine(address := postgres.fresh())
    begin(Database(engine))
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE events")
        connection.exec_driver_sql("UPDATE run SET schema_version = 99")
    engine.dispose()
    with pytest.raises(IntegrityError, match=r"schema t\d+, has schema version 99"):
        open_postgres(address)
    schema = address.rpartition("%3D")[2]
    assert postgres.execute(f"SELECT to_regclass('{schema}.events')") == [(None,)]
