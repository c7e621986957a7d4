"""One writer, fenced by its term; a transaction is whole or nothing; what cannot hold a database is refused."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import select, text
from tests.fakes import NOON, sqlite_file

from crosstrain.domain.events import EventKind
from crosstrain.domain.ids import Generation, Instant, Token
from crosstrain.domain.ledger import grant, open_epoch
from crosstrain.errors import EnvironmentFault, IntegrityError, Superseded
from crosstrain.storage import ledger_store, run_store, schema
from crosstrain.storage.database import Database, open_sqlite, refuse_network_file_system

NOW = Instant(NOON)


def begin(database: Database) -> None:
    with database.write() as connection:
        run_store.create(connection, "run", {}, "0" * 64, {}, NOW)


@pytest.fixture(params=["memory", "file"])
def database(request: pytest.FixtureRequest, fast_tmp: Path) -> Iterator[Database]:
    opened = open_sqlite(None if request.param == "memory" else fast_tmp / "run.sqlite")
    begin(opened)
    yield opened
    opened.close()


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


def test_take_over_fences_every_coordinator_before_it(fast_tmp: Path) -> None:
    with sqlite_file(fast_tmp / "run.sqlite") as first, sqlite_file(fast_tmp / "run.sqlite") as second:
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


def test_two_processes_racing_for_the_same_blocks_never_share_one(fast_tmp: Path) -> None:
    path = fast_tmp / "run.sqlite"
    with sqlite_file(path) as first, sqlite_file(path) as second:
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


def test_database_is_the_same_after_it_was_opened_again(fast_tmp: Path) -> None:
    with sqlite_file(fast_tmp / "run.sqlite") as database:
        begin(database)
        with database.write() as connection:
            run_store.log(connection, EventKind.PUBLISHED, "kept", NOW)
    with sqlite_file(fast_tmp / "run.sqlite") as database:
        assert events(database) == ["kept"]


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


def test_read_only_database_can_be_read_beside_its_writer_and_not_written(fast_tmp: Path) -> None:
    path = fast_tmp / "run.sqlite"
    with sqlite_file(path) as writer:
        begin(writer)
        reader = open_sqlite(path, read_only=True)
        with reader.read() as connection:
            assert connection.execute(select(schema.run.c.name)).scalar() == "run"
        with pytest.raises(EnvironmentFault, match="readonly"), reader.write() as connection:
            run_store.log(connection, EventKind.PUBLISHED, "x", NOW)
        reader.close()


def test_open_file_that_is_no_database_is_refused(fast_tmp: Path) -> None:
    path = fast_tmp / "run.sqlite"
    path.write_bytes(b"RUN.toml was copied over it, alas. " * 50)
    with pytest.raises(IntegrityError, match="is not a crosstrain database: file is not a database"):
        open_sqlite(path)


def test_open_other_schema_version_is_refused(fast_tmp: Path) -> None:
    path = fast_tmp / "run.sqlite"
    with sqlite_file(path) as database:
        begin(database)
        with database.write() as connection:
            connection.execute(text("UPDATE run SET schema_version = 99"))
    with pytest.raises(IntegrityError, match=r"schema version 99, this crosstrain needs \d"):
        open_sqlite(path)


def test_open_in_a_directory_that_is_not_there_is_refused(fast_tmp: Path) -> None:
    with pytest.raises(EnvironmentFault, match="cannot be opened"):
        open_sqlite(fast_tmp / "missing" / "run.sqlite")


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_open_in_a_read_only_directory_is_refused(fast_tmp: Path) -> None:
    fast_tmp.chmod(0o500)
    try:
        with pytest.raises(EnvironmentFault, match="must exist, be writable"):
            open_sqlite(fast_tmp / "run.sqlite")
    finally:
        fast_tmp.chmod(0o700)


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
