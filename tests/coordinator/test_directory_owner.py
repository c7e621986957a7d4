"""Two runs that were given one directory for their blobs: each would remove the other's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.databases import Backend
from tests.fakes import ManualClock, build_world
from tests.postgres import Server

from crosstrain.errors import UsageError
from crosstrain.storage import run_store
from crosstrain.storage.postgres import open_postgres


def test_second_run_of_a_directory_is_refused_and_leaves_no_trace(fast_tmp: Path, postgres: Server) -> None:
    addresses = [postgres.fresh(), postgres.fresh()]
    first, second = (open_postgres(address) for address in addresses)
    world = build_world(fast_tmp, database=first)
    later = ManualClock()
    later.advance(1000)
    (fast_tmp / "work" / "merge").mkdir(parents=True)
    with pytest.raises(
        UsageError, match=r"of run run, begun at 1800000001000 ms, found one of run run, begun at"
    ) as caught:
        build_world(fast_tmp, database=second, clock=later)
    assert "set `coordinator.dir` to a directory of its own" in caught.value.hint
    assert (fast_tmp / "work" / "merge").exists()
    with second.read() as connection:
        assert run_store.load(connection) is None
    world.restart(open_postgres(addresses[0]))
    for database in (world.database, first, second):
        database.close()


def test_directory_is_marked_where_the_database_is_elsewhere(
    fast_tmp: Path, new_backend: Callable[[], Backend]
) -> None:
    database = new_backend().open()
    build_world(fast_tmp, database=database)
    with database.read() as connection:
        elsewhere = connection.dialect.name != "sqlite"
    assert (fast_tmp / "run.json").exists() == elsewhere
    if elsewhere:
        assert json.loads((fast_tmp / "run.json").read_text()) == {"name": "run", "created_at": 1_800_000_000_000}
