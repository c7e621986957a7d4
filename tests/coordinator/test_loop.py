"""The coordinator's loop as it runs: woken by what may close a round, ended by a successor, patient with a full disk."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes import FailingDatabase, ManualClock, World, build_world, sqlite_file
from tests.waiting import until

from crosstrain.coordinator import publisher
from crosstrain.domain.ids import Digest, Generation
from crosstrain.errors import EnvironmentFault, IntegrityError, Superseded
from crosstrain.storage import lease_store
from crosstrain.storage.database import open_sqlite
from crosstrain.storage.object_store import LocalObjectStore


@pytest.fixture
def world(fast_tmp: Path) -> Iterator[World]:
    """On a file, because the loop and the requests are in different threads."""
    with sqlite_file(fast_tmp / "run.sqlite") as database:
        yield build_world(fast_tmp, database=database)


@pytest.fixture
def running(world: World) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=world.loop.run)
    thread.start()
    yield thread
    world.loop.stop()
    thread.join(10)
    assert not thread.is_alive()


def test_loop_closes_a_round_as_soon_as_it_may(world: World, running: threading.Thread) -> None:
    (alpha,) = world.begin("alpha")
    alpha.work()
    alpha.contribute()
    until(lambda: len(world.chain()) == 2)
    assert world.audit().problems == ()


class SlowStore(LocalObjectStore):
    """Every file of a merge takes it a hundred seconds by the coordinator's clock."""

    def __init__(self, directory: Path, clock: ManualClock) -> None:
        super().__init__(directory)
        self._clock = clock

    def adopt(self, path: Path, digest: Digest | None = None) -> Digest:
        self._clock.advance(100_000)
        return super().adopt(path, digest)


def test_loop_does_not_rest_after_a_merge_as_after_a_look(world: World, running: threading.Thread) -> None:
    world.service.objects = SlowStore(world.directory / "objects", world.clock)
    (alpha,) = world.begin("alpha")
    for generations in (2, 3):
        alpha.work()
        alpha.contribute()
        until(lambda: len(world.chain()) == generations)  # noqa: B023 - called before the next turn


def test_loop_ends_when_another_coordinator_took_over(world: World, fast_tmp: Path, running: threading.Thread) -> None:
    successor = open_sqlite(fast_tmp / "run.sqlite")
    successor.take_over()
    until(lambda: not running.is_alive())
    assert isinstance(world.loop.failure, Superseded)
    successor.close()


def test_loop_goes_on_after_a_full_disk(world: World) -> None:
    tried = threading.Event()

    def refuse() -> bool:
        tried.set()
        raise EnvironmentFault("The database cannot be written: database or disk is full.", "free disk space")

    world.service.database = FailingDatabase(world.database, refuse)
    thread = threading.Thread(target=world.loop.run)
    thread.start()
    assert tried.wait(20)
    assert world.loop.failure is None
    world.loop.stop()
    thread.join(10)
    assert not thread.is_alive()


def test_round_that_was_published_is_not_published_again(world: World) -> None:
    (alpha,) = world.begin("alpha")
    alpha.work()
    alpha.contribute()
    world.step(1000)
    before = world.dump()
    with world.database.read() as connection:
        rows = lease_store.accepted(connection, Generation(0))
    with pytest.raises(IntegrityError, match="Generation 0 was to be followed, but 1 is the newest"):
        publisher.publish(world.service, world.chain()[0], rows, world.clock.now())
    assert world.dump() == before
