"""The ledger's own operations, on its rows, at two sizes of the corpus with as many leases outstanding."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable

from load import spread

from crosstrain.domain import ledger
from crosstrain.domain.block import BlockState
from crosstrain.domain.events import EventKind
from crosstrain.domain.ids import Token
from crosstrain.storage import ledger_store
from crosstrain.storage.database import open_sqlite

SMALL, LARGE = 10**5, 10**8
LEASE_BLOCKS = 20
REPEATS = 200


class Ledger:
    """Rows of one epoch, a lease for each of many sites, and gaps that leases left that are over."""

    def __init__(self, blocks: int, leases: int) -> None:
        self.database = open_sqlite(None)  # in memory: the disk is the same for both sizes
        self._next = 1
        with self.database.write() as connection:
            ledger_store.apply(connection, ledger.open_epoch(0, blocks))
        for _ in range(leases):
            self.grant()

    def grant(self) -> Token:
        token, self._next = Token(self._next), self._next + 1
        with self.database.write() as connection:
            spans = ledger_store.available(connection, 0, LEASE_BLOCKS)
            ledger_store.apply(connection, ledger.grant(spans, LEASE_BLOCKS, token))
        return token

    def expire(self, token: Token) -> None:
        with self.database.write() as connection:
            held = ledger_store.held(connection, token)
            free = ledger_store.neighbours(connection, held, BlockState.AVAILABLE)
            ledger_store.apply(connection, ledger.move(held, EventKind.EXPIRED, free))

    def shed(self, token: Token) -> None:
        with self.database.write() as connection:
            held = ledger_store.held(connection, token)
            tail = ledger.split(held, LEASE_BLOCKS // 2)[1]
            free = ledger_store.neighbours(connection, tail, BlockState.AVAILABLE)
            ledger_store.apply(connection, ledger.shed(held, LEASE_BLOCKS // 2, free))

    def contribute(self, token: Token) -> None:
        with self.database.write() as connection:
            held = ledger_store.held(connection, token)
            free = ledger_store.neighbours(connection, held, BlockState.AVAILABLE)
            ledger_store.apply(connection, ledger.contribute(held, LEASE_BLOCKS // 4, free))

    def count(self) -> None:
        with self.database.read() as connection:
            ledger_store.counts(connection, 0)


def operation_times(blocks: int, leases: int) -> dict[str, float]:
    """Median microseconds of each operation."""
    rows = Ledger(blocks, leases)
    taken = defaultdict(list)

    def timed(name: str, operation: Callable[[], Token | None]) -> Token | None:
        begun = time.perf_counter()
        result = operation()
        taken[name].append(1e6 * (time.perf_counter() - begun))
        return result

    for _ in range(REPEATS):
        lost, kept = timed("grant", rows.grant), timed("grant", rows.grant)
        assert lost is not None and kept is not None
        timed("shed", lambda token=kept: rows.shed(token))  # type: ignore[misc]
        timed("contribute", lambda token=kept: rows.contribute(token))  # type: ignore[misc]
        timed("expire", lambda token=lost: rows.expire(token))  # type: ignore[misc]
        timed("counts", rows.count)
    rows.database.close()
    return {name: statistics.median(values) for name, values in taken.items()}


def operation_ratios(rounds: int, leases: int) -> tuple[dict[str, float], dict[str, float]]:
    """The sum of the operations' times at 10^8 blocks over that at 10^5, and the times themselves."""
    sizes = {SMALL: [], LARGE: []}  # type: dict[int, list[dict[str, float]]]
    for number in range(rounds + 1):
        for size in (SMALL, LARGE) if number % 2 else (LARGE, SMALL):
            sizes[size].append(operation_times(size, leases))
    sums = {size: [sum(times.values()) for times in found[1:]] for size, found in sizes.items()}
    ratios = [large / small for small, large in zip(sums[SMALL], sums[LARGE], strict=True)]
    times = {
        f"{name}_us_at_1e8": statistics.median(found[name] for found in sizes[LARGE][1:]) for name in sizes[LARGE][0]
    }
    return spread("op_time_1e8_over_1e5", ratios), times
