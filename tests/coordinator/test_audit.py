"""The audit finds what was changed behind the coordinator's back: every planted fault is a problem, none is a traceback."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from tests.fakes import World, build_world, run_config

from crosstrain.coordinator.audit import audit
from crosstrain.storage.database import open_sqlite


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two generations, an expired lease, a contribution that waits and a live lease."""
    world = build_world(tmp_path_factory.mktemp("story"), run_config(heldout={"windows": 2}))
    alpha, beta = world.begin("alpha", "beta")
    alpha.work()
    beta.work()
    alpha.contribute(0.5)
    beta.contribute(0.25, blocks=3)
    world.step(1000)
    alpha.work()
    world.pass_time(10_000)
    alpha, beta = world.site("alpha"), world.site("beta")
    alpha.work()
    beta.work()
    alpha.contribute(0.3, blocks=2)
    assert world.audit().problems == ()
    yield world
    world.database.close()


@pytest.fixture
def told(story: World) -> Iterator[World]:
    """The same story for every test, whatever the one before did to its rows and blobs."""
    live = story.database._engine.raw_connection().driver_connection
    assert isinstance(live, sqlite3.Connection)
    rows = sqlite3.connect(":memory:")
    live.backup(rows)
    blobs = {path: path.read_bytes() for path in map(story.objects.path, story.objects.digests())}
    yield story
    rows.backup(live)
    rows.close()
    for path, data in blobs.items():
        path.write_bytes(data)


ROWS = [
    "UPDATE contributions SET tokens = tokens - 8 WHERE token = 1",
    "UPDATE contributions SET steps = steps + 1 WHERE token = 1",
    "UPDATE contributions SET windows_digest = '8:' || substr(windows_digest, 3, 31) || 'z' WHERE token = 1",
    "UPDATE contributions SET generation = 1 WHERE token = 1",
    "UPDATE contributions SET accepted = 0 WHERE token = 1",
    "UPDATE contributions SET delta = (SELECT master FROM generations WHERE number = 0) WHERE token = 1",
    "DELETE FROM contributions WHERE token = 1",
    "UPDATE generations SET parent = 1 WHERE number = 1",
    "UPDATE generations SET parent = NULL WHERE number = 1",
    "UPDATE generations SET number = 2, parent = 1 WHERE number = 1",
    "UPDATE generations SET tokens = tokens + 1 WHERE number = 1",
    "UPDATE generations SET global_step = global_step + 1 WHERE number = 1",
    "UPDATE generations SET contributions = 1 WHERE number = 1",
    "UPDATE generations SET eta = eta + 0.01 WHERE number = 1",
    "UPDATE generations SET beta = 0 WHERE number = 1",
    "UPDATE generations SET master = (SELECT master FROM generations WHERE number = 0) WHERE number = 1",
    "UPDATE generations SET momentum = NULL WHERE number = 1",
    "DELETE FROM generations WHERE number = 0",
    "DELETE FROM generations WHERE number = 1",
    "UPDATE spans SET state = 'available', token = NULL WHERE state = 'merged'",
    "UPDATE spans SET state = 'merged' WHERE state = 'contributed'",
    "UPDATE spans SET state = 'nonsense' WHERE state = 'merged'",
    "UPDATE spans SET state = 'contributed' WHERE state = 'leased'",
    "UPDATE spans SET token = token + 5 WHERE state = 'leased'",
    "UPDATE spans SET stop = stop - 1 WHERE state = 'leased'",
    "UPDATE spans SET stop = stop + 1 WHERE state = 'leased'",
    "UPDATE spans SET stop = start WHERE state = 'leased'",
    "DELETE FROM spans WHERE state = 'merged'",
    "DELETE FROM spans",
    "UPDATE leases SET state = 'expired' WHERE state = 'live'",
    "UPDATE leases SET state = 'live' WHERE state = 'expired'",
    "UPDATE leases SET state = 'contributed' WHERE token = 1",
    "UPDATE leases SET state = 'merged' WHERE state = 'contributed'",
    "UPDATE leases SET state = 'nonsense' WHERE token = 1",
    "DELETE FROM leases WHERE token = 1",
    "DELETE FROM leases WHERE state = 'live'",
    "UPDATE sites SET merged_blocks = merged_blocks + 1 WHERE name = 'alpha'",
    "UPDATE sites SET granted_blocks = granted_blocks + 1 WHERE name = 'alpha'",
    "UPDATE sites SET lost_blocks = 0 WHERE name = 'alpha'",
    "UPDATE sites SET tokens = tokens + 1 WHERE name = 'alpha'",
    "UPDATE sites SET grants = grants + 1 WHERE name = 'alpha'",
    "UPDATE sites SET ttl_expiries = 0 WHERE name = 'alpha'",
    "DELETE FROM sites WHERE name = 'alpha'",
    "DELETE FROM events WHERE kind = 'session-opened' AND session = 1",
    "UPDATE events SET stop = stop + 1 WHERE kind = 'contributed' AND token = 1",
    "UPDATE events SET token = 2 WHERE kind = 'merged' AND token = 1",
    "UPDATE events SET kind = 'nonsense' WHERE kind = 'merged' AND token = 1",
    "UPDATE events SET start = NULL WHERE kind = 'merged' AND token = 1",
    "UPDATE events SET stop = 100000 WHERE kind = 'granted' AND token = 1",
    "UPDATE run SET epoch = 1",
    "UPDATE run SET corpus = '{}'",
    "DELETE FROM run",
] + [
    f"DELETE FROM events WHERE seq = (SELECT min(seq) FROM events WHERE kind = '{kind}')"
    for kind in ("granted", "contributed", "merged", "expired", "released", "published", "round-closed")
]


@pytest.mark.parametrize("statement", ROWS)
def test_audit_finds_a_changed_row(told: World, statement: str) -> None:
    database = told.database
    with database._engine.begin() as connection:
        assert connection.execute(text(statement)).rowcount > 0
    assert told.audit().problems != ()


BLOBS = ["weights", "master", "momentum"]


@pytest.mark.parametrize("name", BLOBS)
@pytest.mark.parametrize("how", ["flip a bit", "delete", "truncate"])
def test_audit_finds_a_changed_blob_of_a_generation(told: World, name: str, how: str) -> None:
    digest = getattr(told.chain()[-1], name)
    _damage(told.objects.path(digest), how)
    for replay in (False, True):
        assert any(digest[:12] in problem for problem in told.audit(replay).problems)


@pytest.mark.parametrize("how", ["flip a bit", "delete", "truncate"])
def test_audit_finds_a_changed_delta(told: World, how: str) -> None:
    (row, *_) = told.dump()["contributions"]
    digest = next(value for value in row if isinstance(value, str) and len(value) == 64)
    _damage(told.objects.path(digest), how)
    problems = told.audit().problems
    assert any(digest[:12] in problem and "contribution of lease 1" in problem for problem in problems)


def _damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    path.unlink()
    if how == "flip a bit":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif how == "truncate":
        path.write_bytes(data[:-1])


def test_audit_of_a_healthy_run_says_what_it_looked_at(told: World) -> None:
    found = told.audit()
    assert found.ok
    assert (found.generations, found.contributions, found.replayed) == (2, 3, 1)
    assert sum(found.counts.values()) == found.blocks == told.blocks


def test_audit_works_read_only_beside_the_running_coordinator(fast_tmp: Path) -> None:
    database = open_sqlite(fast_tmp / "run.sqlite")
    world = build_world(fast_tmp, database=database)
    (alpha,) = world.begin("alpha")
    alpha.work()
    reader = open_sqlite(fast_tmp / "run.sqlite", read_only=True)
    assert audit(reader, world.objects, replay=True).ok
    alpha.contribute()
    world.step(1000)
    assert audit(reader, world.objects, replay=True).generations == 2
    reader.close()
    database.close()


def test_audit_of_an_empty_database_says_so(fast_tmp: Path) -> None:
    world = build_world(fast_tmp)
    empty = open_sqlite(None)
    assert audit(empty, world.objects).problems == ("the database holds no run",)
    empty.close()
