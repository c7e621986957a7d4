"""The lock of a term is one process's, and free when that process is dead."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine
from tests.fakes import NOON
from tests.postgres import Server

from crosstrain.clock import SystemClock
from crosstrain.domain.ids import Instant
from crosstrain.errors import EnvironmentFault
from crosstrain.storage import run_store
from crosstrain.storage.database import Database
from crosstrain.storage.postgres import PostgresTermLock, postgres_engine
from crosstrain.storage.term_lock import FileTermLock


@pytest.fixture
def engine(postgres: Server) -> Iterator[Engine]:
    opened = postgres_engine(postgres.fresh())
    with Database(opened).write() as connection:
        run_store.create(connection, "run", {}, "0" * 64, {}, Instant(NOON))
    yield opened
    opened.dispose()


class Holder:
    """Another process, which takes terms of a lock file as it is told."""

    def __init__(self, path: Path) -> None:
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            lock = FileTermLock(path)
            while order := os.read(orders, 1):
                os.write(answers, b"y" if lock.take(order[0]) else b"n")
            os._exit(0)
        os.close(orders)
        os.close(answers)

    def take(self, term: int) -> bool:
        os.write(self._orders, bytes([term]))
        return os.read(self._answers, 1) == b"y"

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._orders)
        os.close(self._answers)


def test_lock_file_shuts_other_processes_out_term_by_term(tmp_path: Path) -> None:
    lock, holder = FileTermLock(tmp_path / "lock"), Holder(tmp_path / "lock")
    assert holder.take(1)
    assert not lock.take(1)
    assert lock.take(2)
    assert lock.take(2)
    assert not holder.take(2)
    lock.release(2)
    assert holder.take(2)
    holder.kill()
    assert lock.take(1)
    lock.close()


def test_lock_file_of_a_killed_process_is_free_at_once(tmp_path: Path) -> None:
    lock, holder = FileTermLock(tmp_path / "lock"), Holder(tmp_path / "lock")
    assert holder.take(7)
    assert not lock.take(7)
    holder.kill()
    assert lock.take(7)
    lock.close()
    lock.close()


def test_lock_file_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="the directory does not exist"):
        FileTermLock(tmp_path / "none" / "lock")


def test_server_lock_shuts_other_connections_out_term_by_term(engine: Engine) -> None:
    first, second = PostgresTermLock(engine), PostgresTermLock(engine)
    assert first.take(1)
    assert first.take(1)
    assert not second.take(1)
    assert second.take(2)
    first.release(1)
    first.release(1)
    assert second.take(1)
    second.close()
    deadline = SystemClock().perf() + 20
    while not (first.take(1) and first.take(2)):  # the server notices the end of a connection in its own time
        assert SystemClock().perf() < deadline
    first.close()


def test_server_lock_of_another_run_is_another_lock(
    postgres: Server, engine: Engine, new_engine: Callable[[], Engine]
) -> None:
    first, other = PostgresTermLock(engine), PostgresTermLock(new_engine())
    assert first.take(1)
    assert other.take(1)
    first.close()
    other.close()


@pytest.fixture
def new_engine(postgres: Server) -> Iterator[Callable[[], Engine]]:
    made: list[Engine] = []

    def make() -> Engine:
        made.append(postgres_engine(postgres.fresh()))
        return made[-1]

    yield make
    for each in made:
        each.dispose()


def test_server_lock_lost_with_its_connection_can_be_taken_again(postgres: Server, engine: Engine) -> None:
    first, second = PostgresTermLock(engine), PostgresTermLock(engine)
    assert first.take(1)
    postgres.execute(
        "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_try_advisory_lock%'"
    )
    with pytest.raises(EnvironmentFault, match="cannot be used"):
        first.take(1)
    assert first.take(1)
    assert not second.take(1)
    first.close()
    second.close()
