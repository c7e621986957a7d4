"""What a request costs in statements, and that the short way past FastAPI answers as the long one does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.fakes import SiteDriver, World


@contextmanager
def statements(world: World) -> Iterator[list[str]]:
    """What SQLite runs meanwhile, without the transactions' ends."""
    with world.database.read() as connection:
        driver: Any = connection.connection.dbapi_connection
    found: list[str] = []
    driver.set_trace_callback(lambda sql: found.append(sql) if sql.startswith(("SELECT", "UPDATE", "INSERT")) else None)
    yield found
    driver.set_trace_callback(None)


def test_a_heartbeat_is_one_statement(world: World) -> None:
    (alpha,) = world.begin("alpha")
    alpha.work()
    with statements(world) as found:
        assert alpha.beat()["lease_alive"]
    assert len(found) == 1


def test_a_grant_is_three_reads_and_six_writes(world: World) -> None:
    alpha, beta = world.begin("alpha", "beta")
    alpha.work()
    with statements(world) as found:
        assert beta.ask()["work"] == "train"
    reads = [sql for sql in found if sql.startswith("SELECT")]
    assert (len(reads), len(found)) == (3, 9)


def test_who_waits_costs_no_look_at_other_sites(world: World) -> None:
    alpha, beta = world.begin("alpha", "beta")
    alpha.work()
    beta.work()
    alpha.contribute()
    with statements(world) as found:
        assert alpha.ask()["work"] == "wait"
    assert len(found) == 2
    assert not [sql for sql in found if "FROM sites" in sql or "FROM spans" in sql]


def test_many_grants_share_one_look_at_all_sites(world: World) -> None:
    drivers = world.begin("alpha", "beta", "gamma")
    with statements(world) as found:
        for driver in drivers:
            driver.work()
    looks = [sql for sql in found if "FROM sites ORDER BY" in sql]
    assert len(looks) == 2  # the second is the last site's, whose grant is of the epoch's short end


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "application/vnd.other+json"])
def test_the_long_way_answers_as_the_short_one(world: World, content_type: str) -> None:
    (alpha,) = world.begin("alpha")
    alpha.work()
    assert alpha.lease is not None
    body = f'{{"phase": "training", "done": 3, "token": {alpha.lease["token"]}}}'
    path = f"sessions/{alpha.session}/beat"
    replies = [
        world.http.post(path, content=body, headers={"content-type": kind})
        for kind in ("application/json", content_type)
    ]
    assert replies[0].json() == replies[1].json()
    assert replies[0].headers == replies[1].headers


@pytest.mark.parametrize("number", ["-1", "1.5", "x", "9007199254740992", "٣"])
def test_a_number_that_is_none_is_named_in_the_problem(world: World, number: str) -> None:
    response = SiteDriver(world, "alpha").post(f"sessions/{number}/beat", phase="waiting")
    assert (response.status_code, response.json()["kind"]) in ((422, "malformed"), (404, "unknown-session"))
    if response.status_code == 422:
        assert "session" in response.json()["detail"]
