"""Prepared statements give what SQLAlchemy gives, and fail as SQLAlchemy fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import bindparam, insert, or_, select
from sqlalchemy.exc import IntegrityError, OperationalError
from tests.fakes import sqlite_file

from crosstrain.errors import EnvironmentFault
from crosstrain.storage import schema
from crosstrain.storage.database import Database
from crosstrain.storage.prepared import Prepared

ROWS = schema.rounds
BY_NUMBER = Prepared(select(ROWS).where(ROWS.c.generation == bindparam("generation")))
OF_TWO = Prepared(select(ROWS.c.generation).where(or_(*(ROWS.c.generation == each for each in (1, 3)))))
ADD = Prepared(insert(ROWS).inline())


@pytest.fixture
def database(fast_tmp: Path) -> Iterator[Database]:
    with sqlite_file(fast_tmp / "run.sqlite") as opened:
        with opened.write() as connection:
            for number in range(4):
                ADD.execute(connection, generation=number, opened_at=10 * number)
        yield opened


def test_rows_are_those_of_sqlalchemy(database: Database) -> None:
    with database.read() as connection:
        expected = [dict(row) for row in connection.execute(select(ROWS)).mappings()]
        assert Prepared(select(ROWS)).all(connection) == expected
        assert Prepared(select(ROWS)).tuples(connection) == [tuple(row.values()) for row in expected]


def test_parameters_and_constants_are_both_bound(database: Database) -> None:
    with database.read() as connection:
        found = BY_NUMBER.first(connection, generation=2)
        assert found is not None and found["opened_at"] == 20
        assert OF_TWO.tuples(connection) == [(1,), (3,)]


def test_no_row_is_none(database: Database) -> None:
    with database.read() as connection:
        assert BY_NUMBER.first(connection, generation=9) is None
        assert BY_NUMBER.scalar(connection, generation=9) is None


def test_writes_belong_to_the_transaction_of_their_connection(database: Database) -> None:
    with pytest.raises(RuntimeError), database.write() as connection:
        assert ADD.execute(connection, generation=7, opened_at=1) == 1
        raise RuntimeError
    with database.read() as connection:
        assert BY_NUMBER.first(connection, generation=7) is None


def test_an_error_of_the_driver_is_sqlalchemys(database: Database) -> None:
    with pytest.raises(IntegrityError), database.write() as connection:
        ADD.execute(connection, generation=1, opened_at=1)


def test_a_lookup_sees_what_is_committed_and_nothing_else(database: Database) -> None:
    with database.write() as connection:
        ADD.execute(connection, generation=8, opened_at=80)
        assert database.lookup(BY_NUMBER, generation=8) is None
    found = database.lookup(BY_NUMBER, generation=8)
    assert found is not None and found["opened_at"] == 80


def test_a_lookup_that_fails_leaves_the_next_one_unharmed(database: Database) -> None:
    with database.write() as connection:
        connection.exec_driver_sql("ALTER TABLE rounds RENAME TO hidden")
    with pytest.raises(EnvironmentFault):
        database.lookup(BY_NUMBER, generation=1)
    with database.write() as connection:
        connection.exec_driver_sql("ALTER TABLE hidden RENAME TO rounds")
    assert database.lookup(BY_NUMBER, generation=1) is not None


def test_a_statement_that_cannot_run_names_its_sql(database: Database) -> None:
    with database.write() as connection:
        connection.exec_driver_sql("DROP TABLE rounds")
    with pytest.raises(EnvironmentFault) as caught, database.read() as connection:
        BY_NUMBER.first(connection, generation=1)
    assert isinstance(caught.value.__cause__, OperationalError)
    assert "FROM rounds" in str(caught.value.__cause__)
