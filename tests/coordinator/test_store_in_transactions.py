"""Nothing that a bucket may keep waiting happens inside a write transaction: everybody else who writes would wait with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import SiteDriver, World, build_world, run_config, sha256, weights

from crosstrain.domain.ids import Digest
from crosstrain.domain.timeouts import COLLECT_S, GRACE_S
from crosstrain.storage.database import Database, sqlite_engine
from crosstrain.storage.object_store import LocalObjectStore

LOOK, GRACE = round(1000 * COLLECT_S), round(1000 * GRACE_S)
SHORT = {"delete"}
"""Requests that are bounded, one in each transaction."""
LONG = ("has", "size", "path", "ready", "address", "adopt", "held", "open_part", "complete", "verify", "discard")
LISTS = ("digests", "stored", "sweep")


class Watched(Database):
    """Knows whether somebody writes."""

    def __init__(self) -> None:
        super().__init__(sqlite_engine(None))
        self.writing = False
        self.transactions = 0

    @contextmanager
    def write(self) -> Iterator[Any]:
        with super().write() as connection:
            self.writing = True
            self.transactions += 1
            try:
                yield connection
            finally:
                self.writing = False


class Bucketlike(LocalObjectStore):
    """As slow as a bucket may be: what was asked inside a transaction is noted. Only what it was asked before does it know."""

    def __init__(self, directory: Path, database: Watched) -> None:
        super().__init__(directory)
        self._here = LocalObjectStore(directory)
        self._database = database
        self._known: set[Digest] = set()
        self.asked_inside: list[str] = []
        self.deleted: list[tuple[int, Digest]] = []
        for name in (*LONG, *LISTS):
            setattr(self, name, self._noted(name, getattr(self._here, name)))

    def knows(self, digest: Digest) -> bool:
        return digest in self._known and self._here.has(digest)

    def delete(self, digest: Digest) -> None:
        self.deleted.append((self._database.transactions, digest))
        assert self._database.writing
        self._here.delete(digest)

    def _noted(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any) -> Any:
            if self._database.writing:
                self.asked_inside.append(name)
            found = method(*args)
            self._known.update(given for given in (*args, found) if isinstance(given, str))
            return found

        return noted


@pytest.fixture
def world(fast_tmp: Path) -> World:
    database = Watched()
    made = build_world(fast_tmp, run_config(coordinator={"keep_generations": 1}), database=database)
    made.objects = Bucketlike(fast_tmp / "objects", database)
    made.restart()
    return made


def a_round(site: SiteDriver, value: float) -> None:
    site.work()
    site.contribute(value)
    site.world.step(1000)


@pytest.mark.parametrize("restarts", [False, True])
def test_rounds_ask_the_store_outside_their_transactions(world: World, restarts: bool) -> None:
    (alpha,) = world.begin("alpha")
    for number in range(3):
        a_round(alpha, 0.1 + number)
        alpha.holds = number + 1
        if restarts:
            world.objects = Bucketlike(world.directory / "objects", world.database)  # it knows nothing
            world.restart()
            assert alpha.ask()["reason"] == "waiting for the object store, which has not answered yet"
            world.step()
    assert len(world.chain()) == 4
    assert world.objects.asked_inside == []


def test_removals_have_a_transaction_each_and_unfinished_uploads_none(world: World) -> None:
    (alpha,) = world.begin("alpha")
    for number in range(2):
        a_round(alpha, 0.1 + number)
    unfinished = sha256(b"half of it")
    world.objects.receive(unfinished, 0, [b"half"], 10)
    for _ in range(3 + GRACE // LOOK):
        world.step(LOOK)
    assert len(world.objects.deleted) >= 4
    transactions = [number for number, _ in world.objects.deleted]
    assert len(set(transactions)) == len(transactions)
    assert world.objects.held(unfinished).length == 0
    assert world.objects.asked_inside == []
    assert world.audit().problems == ()


def test_delta_of_which_it_is_not_known_that_it_is_there_is_asked_for_again(world: World) -> None:
    (alpha,) = world.begin("alpha")
    alpha.work()
    delta = world.put_delta(weights(0.5))
    assert alpha.lease is not None
    claim, token = alpha.claim(delta), alpha.lease["token"]
    world.objects.knows = lambda _digest: False  # removed between the look at it and the transaction
    answer = alpha.post(f"leases/{token}/contribution", **claim)
    assert (answer.status_code, answer.json()["kind"]) == (409, "missing-blob")
    del world.objects.knows
    assert alpha.post(f"leases/{token}/contribution", **claim).json()["accepted"]
