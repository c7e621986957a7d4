"""Requests that come at the same time share one transaction: one commit for all, and each has its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from sqlalchemy import Connection
from tests.fakes import NOON, CrashError, FailingDatabase, World, build_world, sqlite_file

from crosstrain.coordinator import leases
from crosstrain.coordinator.group_commit import LARGEST, GroupCommit
from crosstrain.domain.events import EventKind
from crosstrain.domain.ids import Instant, SessionId
from crosstrain.errors import Refused, Superseded
from crosstrain.storage import run_store
from crosstrain.storage.database import Work
from crosstrain.wire.messages import NextRequest


def log(text: str) -> Work[str]:
    def work(connection: Connection) -> str:
        run_store.log(connection, EventKind.PUBLISHED, text, Instant(NOON))
        return text

    return work


def refused(connection: Connection) -> str:
    log("of a refused request")(connection)
    raise Refused("No.")


def together(world: World, works: Sequence[Work[Any]]) -> list[Any]:
    """What each gets, value or error."""
    group = GroupCommit(world.service)

    async def gather() -> list[Any]:
        return await asyncio.gather(*(group.write(work) for work in works), return_exceptions=True)

    return asyncio.run(gather())


def texts(world: World) -> list[str]:
    with world.database.read() as connection:
        return [row["text"] for row in run_store.events(connection) if row["kind"] == EventKind.PUBLISHED.value]


def transactions(world: World, works: Sequence[Work[Any]]) -> list[int]:
    """How many pieces of work each transaction had that was made for them."""
    sizes: list[int] = []

    class Counting(FailingDatabase):
        def write_all(self, works: Sequence[Work[Any]]) -> list[Any]:
            sizes.append(len(works))
            return super().write_all(works)

    world.service.database = Counting(world.database, lambda: True)
    together(world, works)
    return sizes


def test_requests_of_one_moment_are_one_transaction(world: World) -> None:
    names = [f"request {number}" for number in range(20)]
    assert transactions(world, [log(name) for name in names]) == [20]
    assert texts(world) == names


def test_a_group_has_an_end(world: World) -> None:
    assert transactions(world, [log("x")] * (LARGEST + 1)) == [LARGEST, 1]


def test_a_refused_request_leaves_nothing_and_harms_nobody(world: World) -> None:
    answers = together(world, [log("first"), refused, log("third")])
    assert (answers[0], answers[2]) == ("first", "third")
    assert isinstance(answers[1], Refused)
    assert texts(world) == ["first", "third"]


def test_nobody_is_answered_before_the_commit_and_its_failure_is_everybodys(world: World) -> None:
    world.service.database = FailingDatabase(world.database, lambda: False)
    answers = together(world, [log("first"), refused, log("third")])
    assert [type(answer) for answer in answers] == [CrashError] * 3
    assert texts(world) == []


def test_a_superseded_coordinator_writes_none_of_a_group(fast_tmp: Path) -> None:
    path = fast_tmp / "run.sqlite"
    with sqlite_file(path) as database, sqlite_file(path) as successor:
        world = build_world(fast_tmp, database=database)
        successor.take_over()
        answers = together(world, [log("first"), log("second")])
        assert [type(answer) for answer in answers] == [Superseded] * 2
        assert texts(world) == []


def test_work_that_comes_later_gets_a_transaction_of_its_own(world: World) -> None:
    group = GroupCommit(world.service)

    async def one_after_the_other() -> list[str]:
        return [await group.write(log(name)) for name in ("first", "second")]

    assert asyncio.run(one_after_the_other()) == ["first", "second"]
    assert texts(world) == ["first", "second"]


def test_a_request_that_is_given_up_meanwhile_leaves_the_others_their_answers(world: World) -> None:
    group = GroupCommit(world.service)

    async def give_up_the_first() -> list[Any]:
        tasks = [asyncio.create_task(group.write(log(name))) for name in ("first", "second")]
        await asyncio.wait(tasks, timeout=0)
        tasks[0].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, second = asyncio.run(give_up_the_first())
    assert isinstance(first, asyncio.CancelledError)
    assert second == "second"


def test_sites_that_ask_at_once_get_blocks_of_their_own(world: World) -> None:
    drivers = world.begin("alpha", "beta", "gamma")
    now = world.clock.now()

    def ask(session: int) -> Work[Any]:
        return lambda connection: leases.next_work(
            world.service, connection, SessionId(session), NextRequest(holds=0), now
        )

    replies = together(world, [ask(driver.session) for driver in drivers])
    spans = sorted(span for reply in replies for span in reply.lease.spans)
    assert all(one[2] == other[1] for one, other in pairwise(spans))
    assert sorted(reply.lease.token for reply in replies) == [1, 2, 3]
    assert world.audit().problems == ()
