"""Commit is the merge (G2): whatever the process dies between, the same round goes on and the same generation comes out."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fakes import (
    CrashError,
    FailingDatabase,
    FailingStore,
    Fuse,
    SiteDriver,
    World,
    build_world,
    run_config,
    weights,
)

from crosstrain.domain.block import BlockState
from crosstrain.domain.generation import GenerationRecord
from crosstrain.errors import Superseded
from crosstrain.storage.database import Database, open_sqlite
from crosstrain.storage.object_store import LocalObjectStore

STEPS_OF_PUBLISH = 8
"""Closing the round, each of three blobs (before and after it appears), the publishing transaction."""


class Process:
    """A coordinator process on files, which dies at its k-th durable step."""

    def __init__(self, directory: Path) -> None:
        self.fuse = Fuse(10**9)
        self.engine_owner = open_sqlite(directory / "run.sqlite")
        database: Database = FailingDatabase(self.engine_owner, self.fuse)
        self.world = build_world(directory, run_config(run={"epochs": 3, "rounds": 50}), windows=16, database=database)
        self.world.objects = FailingStore(directory / "objects", self.fuse)
        self.world.restart()

    def die_in(self, steps: int) -> None:
        self.fuse.left = steps

    def close(self) -> None:
        self.engine_owner.close()


def reborn(world: World, directory: Path) -> World:
    """A new process on the same files, with nothing that fails."""
    after = World(
        directory,
        world.clock,
        world.config,
        world.manifest,
        open_sqlite(directory / "run.sqlite"),
        LocalObjectStore(directory / "objects"),
    )
    after.step()
    return after


def content(record: GenerationRecord) -> tuple[object, ...]:
    return (record.number, record.master, record.momentum, record.weights, record.global_step, record.tokens)


def contributed_round(world: World) -> list[SiteDriver]:
    alpha, beta = world.begin("alpha", "beta")
    alpha.work()
    beta.work()
    alpha.contribute(0.5)
    beta.contribute(0.25, blocks=3)
    return [alpha, beta]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> GenerationRecord:
    world = build_world(tmp_path_factory.mktemp("undisturbed"), run_config(run={"epochs": 3, "rounds": 50}), windows=16)
    contributed_round(world)
    world.step(1000)
    return world.chain()[-1]


@pytest.mark.parametrize("step", range(STEPS_OF_PUBLISH))
def test_publish_dying_at_any_step_ends_in_the_same_generation(
    fast_tmp: Path, undisturbed: GenerationRecord, step: int
) -> None:
    process = Process(fast_tmp)
    contributed_round(process.world)
    process.die_in(step)
    with pytest.raises(CrashError):
        process.world.step(1000)
    assert len(process.world.chain()) == 1
    assert process.world.counts()[BlockState.MERGED] == 0
    assert process.world.audit().problems == ()
    process.close()
    after = reborn(process.world, fast_tmp)
    assert content(after.chain()[-1]) == content(undisturbed)
    assert after.counts()[BlockState.MERGED] == 7
    assert after.audit().problems == ()
    after.database.close()


def test_publish_has_no_durable_step_that_is_not_tried(fast_tmp: Path) -> None:
    process = Process(fast_tmp)
    contributed_round(process.world)
    process.die_in(STEPS_OF_PUBLISH)
    process.world.step(1000)
    assert process.fuse.left == 0
    assert len(process.world.chain()) == 2
    process.close()


def test_publish_dying_again_and_again_still_ends_in_the_same_generation(
    fast_tmp: Path, undisturbed: GenerationRecord
) -> None:
    process = Process(fast_tmp)
    contributed_round(process.world)
    for step in range(STEPS_OF_PUBLISH):
        process.die_in(step)
        with pytest.raises(CrashError):
            process.world.step(1000)
        process.fuse.left = 10**9
        process.world.restart()
    process.world.step(1000)
    assert content(process.world.chain()[-1]) == content(undisturbed)
    assert process.world.audit().problems == ()
    process.close()


@pytest.mark.parametrize("request_of", ["register", "next", "contribution", "release", "end", "initial"])
def test_request_whose_transaction_dies_leaves_nothing_and_succeeds_again(fast_tmp: Path, request_of: str) -> None:
    process = Process(fast_tmp)
    world = process.world
    if request_of == "initial":
        alpha = world.site("alpha")
    else:
        (alpha,) = world.begin("alpha")
        if request_of != "next":
            alpha.work()
    delta = world.put_weights(weights(1), "F32") if request_of == "initial" else world.put_weights(weights(0.5), "BF16")
    claim = alpha.claim(delta) if request_of == "contribution" else {}

    def send() -> dict[str, object]:
        match request_of:
            case "register":
                response = alpha.post("sessions", **alpha.registration())
            case "contribution":
                response = alpha.post("leases/1/contribution", **claim)
            case "release":
                response = alpha.release()
            case "initial":
                response = alpha.post(f"sessions/{alpha.session}/initial", weights=delta)
            case "end":
                response = alpha.post(f"sessions/{alpha.session}/end", reason="walltime")
            case _:
                response = alpha.post(f"sessions/{alpha.session}/next", holds=0)
        assert response.status_code == 200, response.text
        document: dict[str, object] = response.json()
        return document

    before = world.dump()
    process.die_in(2 if request_of == "initial" else 0)
    with pytest.raises(CrashError):
        send()
    assert world.dump() == before
    process.fuse.left = 10**9
    world.restart()
    assert send()
    assert world.dump() != before
    assert world.audit().problems == ()
    process.close()


def test_contributions_of_both_sites_survive_a_restart_before_the_round_closes(
    fast_tmp: Path, undisturbed: GenerationRecord
) -> None:
    process = Process(fast_tmp)
    contributed_round(process.world)
    process.close()
    after = reborn(process.world, fast_tmp)
    assert content(after.chain()[-1]) == content(undisturbed)
    after.database.close()


def test_zombie_coordinator_cannot_publish_after_another_took_over(fast_tmp: Path) -> None:
    process = Process(fast_tmp)
    contributed_round(process.world)
    after = reborn(process.world, fast_tmp)
    before = after.dump()
    with pytest.raises(Superseded):
        process.world.step(1000)
    assert after.dump() == before
    alpha = SiteDriver(process.world, "alpha", session=1, holds=0)
    assert alpha.post("sessions/1/next", holds=0).status_code == 503
    process.close()
    after.database.close()
