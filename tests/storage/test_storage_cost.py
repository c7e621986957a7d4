"""A request costs what it is about, not what is outstanding (docs/guarantees.md): counted in steps of SQLite's machine, not seconds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Connection

from crosstrain.domain import ledger
from crosstrain.domain.block import BlockState
from crosstrain.domain.ids import Token
from crosstrain.domain.ledger import Span
from crosstrain.storage import ledger_store
from crosstrain.storage.database import Database, open_sqlite

FEW, MANY = 50, 5_000
BLOCKS = 100_000
LEASE_BLOCKS = 10
GAPS = 3
"""Leases given back in the middle: available spans among leased ones."""


def with_leases_out(leases: int) -> Database:
    """A ledger of that many leases, every other one of the first few given back."""
    database = open_sqlite(None)
    with database.write() as connection:
        ledger_store.apply(connection, ledger.open_epoch(0, BLOCKS))
        for token in range(1, leases + 1):
            spans = ledger_store.available(connection, 0, LEASE_BLOCKS)
            ledger_store.apply(connection, ledger.grant(spans, LEASE_BLOCKS, Token(token)))
        for token in range(1, 2 * GAPS, 2):
            give_back(connection, Token(token))
    return database


def give_back(connection: Connection, token: Token) -> None:
    held = ledger_store.held(connection, token)
    near = ledger_store.neighbours(connection, held, BlockState.AVAILABLE)
    ledger_store.apply(connection, ledger.shed(held, 0, near))


def steps(database: Database, work: Callable[[Connection], object]) -> int:
    """Instructions of SQLite's virtual machine, in tens."""
    with database.write() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        counted = [0]

        def tick() -> None:
            counted[0] += 1

        driver.set_progress_handler(tick, 10)
        work(connection)
        driver.set_progress_handler(None, 10)
    return counted[0]


def grant_more(connection: Connection) -> None:
    spans = ledger_store.available(connection, 0, 5 * LEASE_BLOCKS)
    ledger_store.apply(connection, ledger.grant(spans, 5 * LEASE_BLOCKS, Token(MANY + 1)))


WORK: dict[str, Callable[[Connection], object]] = {
    "what is available first": lambda connection: ledger_store.first_free(connection, 0),
    "how many blocks are available": lambda connection: ledger_store.blocks_in(connection, 0, BlockState.AVAILABLE),
    "what a lease holds": lambda connection: ledger_store.held(connection, Token(FEW - 1)),
    "what touches a lease": lambda connection: ledger_store.neighbours(
        connection, ledger_store.held(connection, Token(FEW - 1)), BlockState.AVAILABLE
    ),
    "whether a saved phase is available": lambda connection: ledger_store.are_available(
        connection, [(0, BLOCKS - 20, BLOCKS - 10)]
    ),
    "a grant": grant_more,
    "a lease given back": lambda connection: give_back(connection, Token(FEW - 1)),
}


@pytest.fixture(scope="module")
def sizes() -> tuple[Database, Database]:
    return with_leases_out(FEW), with_leases_out(MANY)


@pytest.mark.parametrize("name", WORK)
def test_a_hundred_times_the_leases_cost_no_more_steps(sizes: tuple[Database, Database], name: str) -> None:
    few, many = (steps(database, WORK[name]) for database in sizes)
    assert many <= 1.5 * few + 5, f"{few} tens of steps with {FEW} leases out, {many} with {MANY}"


@pytest.mark.parametrize("start", [0, LEASE_BLOCKS, 2 * LEASE_BLOCKS, BLOCKS - 1])
def test_the_row_that_holds_a_block_is_found_wherever_it_is(start: int) -> None:
    """Leases 1, 3 and 5 were given back; 2 and 4 hold what is between."""
    with with_leases_out(FEW).read() as connection:
        free = ledger_store.are_available(connection, [(0, start, start + 1)])
        if start == LEASE_BLOCKS:
            assert free == ()
        else:
            (holder,) = free
            assert isinstance(holder, Span) and holder.start <= start < holder.stop
            assert holder.state is BlockState.AVAILABLE
