"""One writer, fenced by its term; a transaction is whole or nothing; what cannot hold a database is refused."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, inspect, select, text
from sqlalchemy.exc import OperationalError
from tests.databases import Backend
from tests.fakes import NOON, sqlite_file

from crosstrain.domain.events import EventKind
from crosstrain.domain.ids import Generation, Instant, Token
from crosstrain.domain.ledger import grant, open_epoch
from crosstrain.errors import EnvironmentFault, IntegrityError, Refused, Superseded, UsageError
from crosstrain.storage import ledger_store, pulse, run_store, schema
from crosstrain.storage.database import Database, open_sqlite
from crosstrain.storage.file_system import refuse_network_file_system
from crosstrain.storage.prepared import Prepared
from crosstrain.storage.pulse import Claim, Pulse

NOW = Instant(NOON)


def begin(database: Database) -> None:
    with database.write() as connection:
        run_store.create(connection, "run", {}, "0" * 64, {}, NOW)


@pytest.fixture
def database(new_backend: Callable[[], Backend]) -> Database:
    opened = new_backend().open()
    begin(opened)
    return opened


def events(database: Database) -> list[str]:
    with database.read() as connection:
        return [row["text"] for row in run_store.events(connection)]


def test_write_commits_on_success_and_leaves_nothing_on_an_exception(database: Database) -> None:
    with database.write() as connection:
        run_store.log(connection, EventKind.PUBLISHED, "kept", NOW)
    with pytest.raises(ZeroDivisionError), database.write() as connection:
        run_store.log(connection, EventKind.PUBLISHED, "lost", NOW)
        run_store.open_round(connection, Generation(0), NOW)
        raise ZeroDivisionError
    assert events(database) == ["kept"]
    with database.read() as connection:
        assert run_store.newest_round(connection) is None


@given(fates=st.lists(st.sampled_from(["stays", "is refused", "breaks"]), max_size=8))
def test_work_done_together_is_that_of_those_who_succeeded(
    new_backend: Callable[[], Backend], fates: list[str]
) -> None:
    database = new_backend().open()
    begin(database)

    def work(number: int, fate: str) -> Callable[[Connection], int]:
        def write(connection: Connection) -> int:
            run_store.log(connection, EventKind.PUBLISHED, f"{number} {fate}", NOW)
            if fate == "is refused":
                raise Refused(fate)
            if fate == "breaks":
                begin_again(connection)
            return number

        return write

    outcomes = database.write_all([work(number, fate) for number, fate in enumerate(fates)])
    kept = [number for number, fate in enumerate(fates) if fate == "stays"]
    assert [outcome.value for outcome in outcomes if outcome.error is None] == kept
    assert [type(outcome.error) is Refused for outcome in outcomes] == [fate == "is refused" for fate in fates]
    assert events(database) == [f"{number} stays" for number in kept]


def begin_again(connection: Connection) -> None:
    """Breaks a constraint."""
    run_store.create(connection, "run", {}, "0" * 64, {}, NOW)


def test_a_fault_of_the_database_ends_all_the_work_done_together(database: Database) -> None:
    def write(connection: Connection) -> None:
        run_store.log(connection, EventKind.PUBLISHED, "lost", NOW)

    def fail(_connection: Connection) -> None:
        raise OperationalError("INSERT", {}, Exception("database or disk is full"))

    with pytest.raises(EnvironmentFault, match="disk is full"):
        database.write_all([write, fail, write])
    assert events(database) == []


def test_take_over_fences_every_coordinator_before_it(shared_backend: Backend) -> None:
    first, second = shared_backend.open(), shared_backend.open()
    begin(first)
    assert first.term is None
    assert (first.take_over(), second.take_over()) == (1, 2)
    with pytest.raises(Superseded, match="term 1, the database is at term 2"), first.write() as connection:
        run_store.log(connection, EventKind.PUBLISHED, "by a zombie", NOW)
    with second.write() as connection:
        run_store.log(connection, EventKind.PUBLISHED, "by the writer", NOW)
    assert events(first) == ["by the writer"]
    assert first.take_over() == 3
    with pytest.raises(Superseded), second.write():
        pass


def test_the_one_writer_looks_nothing_up_twice_between_two_of_its_writes(shared_backend: Backend) -> None:
    ours, another = shared_backend.open(), shared_backend.open()
    begin(ours)
    beats = Prepared(select(schema.run.c.beat))

    def looked_up() -> int:
        found = ours.lookup(beats)
        assert found is not None
        return int(found["beat"])

    def beat(database: Database) -> None:
        with database.write() as connection:
            pulse.beat(connection)

    beat(another)
    assert looked_up() == 1, "nobody has taken over: others may write"
    beat(another)
    assert looked_up() == 2
    ours.take_over()
    assert looked_up() == 2
    beat(another)
    assert looked_up() == 2, "remembered"
    with ours.write() as connection:
        run_store.log(connection, EventKind.PUBLISHED, "changes something", NOW)
    assert looked_up() == 3, "forgotten"


def test_take_over_that_was_decided_before_another_one_is_refused(shared_backend: Backend) -> None:
    first, second = shared_backend.open(), shared_backend.open()
    begin(first)
    with second.read() as connection:
        seen = pulse.pulse(connection)
    assert first.take_over(Claim(seen, 1)) == 1
    with pytest.raises(Superseded, match="a coordinator of term 1 lives"):
        second.take_over(Claim(seen, 2))
    with first.write() as connection:
        pulse.beat(connection)
    with pytest.raises(Superseded, match="of term 1 lives"):
        second.take_over(Claim(Pulse(1, 0), 2))
    assert second.take_over(Claim(Pulse(1, 1), 3)) == 3
    with pytest.raises(Superseded, match="is at term 3"), first.write():
        pass


def test_writer_waits_for_the_transaction_before_it_and_sees_what_that_left(shared_backend: Backend) -> None:
    first, second = shared_backend.open(), shared_backend.open()
    begin(first)
    first.take_over()
    begun, outcome = threading.Event(), []

    def zombie() -> None:
        begun.set()
        try:
            with first.write():
                outcome.append("wrote")
        except Superseded:
            outcome.append("superseded")

    with second.write() as connection:
        thread = threading.Thread(target=zombie)
        thread.start()
        assert begun.wait(20)
        connection.execute(text("UPDATE run SET term = term + 1"))
        assert outcome == []
    thread.join(20)
    assert outcome == ["superseded"]


def test_reader_sees_one_state_while_a_writer_changes_it(shared_backend: Backend) -> None:
    writer, reader = shared_backend.open(), shared_backend.open()
    begin(writer)
    with reader.read() as connection:
        before = pulse.pulse(connection)
        with writer.write() as other:
            pulse.beat(other)
        assert pulse.pulse(connection) == before
    with reader.read() as connection:
        assert pulse.pulse(connection) == Pulse(0, 1)


def test_two_processes_racing_for_the_same_blocks_never_share_one(shared_backend: Backend) -> None:
    first, second = shared_backend.open(), shared_backend.open()
    begin(first)
    with first.write() as connection:
        ledger_store.apply(connection, open_epoch(0, 64))
    barrier, failures = threading.Barrier(4), []

    def take(database: Database, tokens: range) -> None:
        barrier.wait()
        try:
            for token in tokens:
                with database.write() as connection:
                    free = ledger_store.available(connection, 0, 2)
                    ledger_store.apply(connection, grant(free, 2, Token(token)))
        except Exception as error:  # noqa: BLE001 - reported by the main thread
            failures.append(error)

    threads = [
        threading.Thread(target=take, args=((first, second)[n % 2], range(1 + 8 * n, 9 + 8 * n))) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with first.read() as connection:
        spans = ledger_store.all_spans(connection)
    assert [(span.start, span.stop) for span in spans] == [(n, n + 2) for n in range(0, 64, 2)]
    assert {span.token for span in spans} == set(range(1, 33))


def test_stale_change_fails_as_a_whole(database: Database) -> None:
    with database.write() as connection:
        ledger_store.apply(connection, open_epoch(0, 10))
        stale = ledger_store.available(connection, 0, 10)
        ledger_store.apply(connection, grant(stale, 3, Token(1)))
    before = _spans(database)
    with pytest.raises(IntegrityError, match="is not there any more"), database.write() as connection:
        run_store.log(connection, EventKind.GRANTED, "lost", NOW)
        ledger_store.apply(connection, grant(stale, 5, Token(2)))
    assert _spans(database) == before
    assert events(database) == []


def test_database_is_the_same_after_it_was_opened_again(shared_backend: Backend) -> None:
    database = shared_backend.open()
    begin(database)
    with database.write() as connection:
        run_store.log(connection, EventKind.PUBLISHED, "kept", NOW)
    database.close()
    assert events(shared_backend.open()) == ["kept"]


def test_two_processes_may_open_an_empty_database_at_once(shared_backend: Backend) -> None:
    opened: list[Database] = []
    threads = [threading.Thread(target=lambda: opened.append(shared_backend.open())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 3
    begin(opened[0])
    assert opened[2].take_over() == 1


def test_database_of_a_process_that_died_in_a_transaction_shows_nothing_of_it(fast_tmp: Path) -> None:
    path = fast_tmp / "run.sqlite"
    with sqlite_file(path) as database:
        begin(database)
    child = os.fork()
    if child == 0:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE run SET name = 'half', term = 9")
        connection.executemany(
            "INSERT INTO spans VALUES (0, ?, ?, 'available', NULL)", [(n, n + 1) for n in range(999)]
        )
        os._exit(1)
    os.waitpid(child, 0)
    with sqlite_file(path) as database:
        with database.read() as connection:
            run = run_store.load(connection)
            assert run is not None
            assert (run["name"], run["term"]) == ("run", 0)
        assert _spans(database) == []


def test_read_only_database_can_be_read_beside_its_writer_and_not_written(shared_backend: Backend) -> None:
    begin(shared_backend.open())
    reader = shared_backend.open(read_only=True)
    with reader.read() as connection:
        assert connection.execute(select(schema.run.c.name)).scalar() == "run"
    with pytest.raises(EnvironmentFault, match=r"read-?only"), reader.write() as connection:
        run_store.log(connection, EventKind.PUBLISHED, "x", NOW)


def test_read_only_database_without_a_run_says_so_and_makes_nothing(shared_backend: Backend) -> None:
    for _ in range(2):
        with pytest.raises((UsageError, EnvironmentFault), match=r"There is no run|cannot be opened"):
            shared_backend.open(read_only=True)


def test_open_file_that_is_no_database_is_refused(fast_tmp: Path) -> None:
    path = fast_tmp / "run.sqlite"
    path.write_bytes(b"RUN.toml was copied over it, alas. " * 50)
    with pytest.raises(IntegrityError, match="is not a crosstrain database: file is not a database"):
        open_sqlite(path)


def test_open_other_schema_version_is_refused(shared_backend: Backend) -> None:
    database = shared_backend.open()
    begin(database)
    with database.write() as connection:
        connection.execute(text("UPDATE run SET schema_version = 99"))
    with pytest.raises(IntegrityError, match=r"schema version 99, this crosstrain needs \d"):
        shared_backend.open()


@pytest.mark.parametrize("table", ["users", "run", "events"])
def test_open_database_of_another_program_is_refused_and_left_alone(shared_backend: Backend, table: str) -> None:
    database = shared_backend.open()
    with database.write() as connection:
        for ours in schema.metadata.sorted_tables:
            connection.execute(text(f"DROP TABLE {ours.name}"))
        connection.execute(text(f"CREATE TABLE {table} (name TEXT)"))
    with pytest.raises(IntegrityError, match=f"is not a crosstrain database: it holds the tables {table}"):
        shared_backend.open()
    with database.read() as connection:
        assert inspect(connection).get_table_names() == [table]


def test_open_in_a_directory_that_is_not_there_is_refused(fast_tmp: Path) -> None:
    with pytest.raises(EnvironmentFault, match="cannot be opened"):
        open_sqlite(fast_tmp / "missing" / "run.sqlite")


def test_open_in_a_read_only_directory_is_refused(read_only: Path) -> None:
    with pytest.raises(EnvironmentFault, match="must exist, be writable"):
        open_sqlite(read_only / "run.sqlite")


def test_open_path_with_signs_of_the_url_syntax(fast_tmp: Path) -> None:
    directory = fast_tmp / "50% off? #1 & more"
    directory.mkdir()
    with sqlite_file(directory / "run.sqlite") as database:
        begin(database)
    assert (directory / "run.sqlite").exists()


def _spans(database: Database) -> list[tuple[int, int, str]]:
    with database.read() as connection:
        return [(span.start, span.stop, span.state.value) for span in ledger_store.all_spans(connection)]


@pytest.fixture
def mounts(tmp_path: Path) -> Callable[[str], Path]:
    def write(lines: str) -> Path:
        path = tmp_path / "mounts"
        path.write_text(lines)
        return path

    return write


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "gpfs", "beegfs", "fuse.sshfs"])
def test_network_file_system_is_refused_by_name(tmp_path: Path, mounts: Callable[[str], Path], kind: str) -> None:
    table = mounts(f"/dev/sda / ext4 rw 0 0\nserver:/home {tmp_path} {kind} rw 0 0\n")
    with pytest.raises(EnvironmentFault, match=f"is on {kind} .mounted at {tmp_path}"):
        refuse_network_file_system(tmp_path / "coordinator", table)


@pytest.mark.parametrize(
    "table",
    [
        "/dev/sda / ext4 rw 0 0\n",
        "server:/x / nfs rw 0 0\n/dev/sdb {here} xfs rw 0 0\n",
        "/dev/sda / ext4 rw 0 0\nserver:/y {here}-other nfs rw 0 0\n",
        "server:/x {here} nfs rw 0 0\n/dev/sdb {here} ext4 rw 0 0\n",
    ],
)
def test_local_disk_is_accepted_whatever_is_mounted_around_it(
    tmp_path: Path, mounts: Callable[[str], Path], table: str
) -> None:
    refuse_network_file_system(tmp_path, mounts(table.format(here=tmp_path)))


def test_network_file_system_mount_point_with_a_space_is_recognised(
    tmp_path: Path, mounts: Callable[[str], Path]
) -> None:
    directory = tmp_path / "my home"
    directory.mkdir()
    escaped = str(directory).replace(" ", "\\040")
    with pytest.raises(EnvironmentFault, match="nfs"):
        refuse_network_file_system(directory, mounts(f"s:/x {escaped} nfs rw 0 0\n"))


def test_file_systems_are_not_judged_where_no_mount_table_exists(tmp_path: Path) -> None:
    refuse_network_file_system(tmp_path, tmp_path / "none")
