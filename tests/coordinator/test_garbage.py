"""Blobs that are not needed go, after their grace and for a reason; what is needed stays, whatever happens in between."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from tests.fakes import FailingDatabase, SiteDriver, World, build_world, run_config, sha256, weights

from crosstrain.coordinator import garbage
from crosstrain.domain.ids import Digest, Instant
from crosstrain.domain.timeouts import COLLECT_S, GRACE_S, INSPECTION_S
from crosstrain.errors import Superseded
from crosstrain.storage.database import open_sqlite
from crosstrain.storage.object_store import LocalObjectStore

LOOK, GRACE = round(1000 * COLLECT_S), round(1000 * GRACE_S)


def rounds(world: World, count: int) -> SiteDriver:
    """A run of so many generations after the first."""
    (alpha,) = world.begin("alpha")
    for number in range(count):
        alpha.work()
        alpha.contribute(0.1 + number / 10, blocks=1)
        world.step(1000)
        alpha.holds = number + 1
    return alpha


def send(driver: SiteDriver, delta: Digest) -> httpx.Response:
    """Contributes a blob that need not be there."""
    assert driver.lease is not None
    return driver.post(f"leases/{driver.lease['token']}/contribution", **driver.claim(delta))


def pass_grace(world: World) -> None:
    """Until everything that is not needed now is noted and removed."""
    for _ in range(2 + GRACE // LOOK):
        world.step(LOOK)


def kept(world: World) -> set[Digest]:
    return set(world.objects.digests())


def test_a_run_keeps_everything_unless_it_is_told(world: World) -> None:
    rounds(world, 4)
    before = kept(world)
    pass_grace(world)
    assert kept(world) == before
    found = world.audit()
    assert (found.problems, found.replayed, found.not_replayable, found.removed) == ((), 4, 0, 0)


def test_retention_removes_old_generations_and_the_audit_knows(fast_tmp: Path) -> None:
    world = build_world(fast_tmp, run_config(coordinator={"keep_generations": 2, "keep_every": 3}))
    rounds(world, 7)
    chain = world.chain()
    pass_grace(world)
    stays = {record.number for record in chain if world.objects.has(record.master)}
    assert stays == {0, 3, 6, 7}
    found = world.audit()
    assert (found.problems, found.replayed, found.not_replayable) == ((), 3, 4)
    assert found.removed == 4 * 3 + 4
    world.objects.delete(chain[-1].master)
    assert any(chain[-1].master[:12] in problem for problem in world.audit().problems)


def test_what_was_removed_and_is_kept_again_must_be_there(fast_tmp: Path) -> None:
    """A blob that came a second time is looked at like any other."""
    world = build_world(fast_tmp, run_config(coordinator={"keep_generations": 1}))
    rounds(world, 2)
    old = world.chain()[0].master
    data = world.objects.path(old).read_bytes()
    pass_grace(world)
    assert not world.objects.has(old)
    assert world.put(data) == old
    world.objects.path(old).write_bytes(data[:-1])
    assert any(old[:12] in problem for problem in world.audit(replay=False).problems)


def test_unnamed_blobs_and_abandoned_uploads_go_after_their_grace(world: World) -> None:
    rounds(world, 1)
    nobodys, part = world.put(b"a merge that failed"), sha256(b"0123456789")
    world.objects.receive(part, 0, [b"01234"], 10)
    world.step(LOOK)
    world.step(GRACE - 1)
    assert world.objects.has(nobodys) and world.objects.held(part).length == 5
    world.objects.receive(part, 5, [b"56"], 10)  # it moves, so it is no abandoned one
    world.step(LOOK)
    assert not world.objects.has(nobodys) and world.objects.held(part).length == 7
    pass_grace(world)
    assert world.objects.held(part).length == 0
    assert world.audit().problems == ()


def test_refused_delta_stays_a_day(world: World) -> None:
    alpha = rounds(world, 1)
    alpha.work()
    bad = weights(1)
    bad["embed"][0, 0] = float("nan")
    digest = world.put_delta(bad)
    assert send(alpha, digest).json()["accepted"] is False
    for _ in range(round(INSPECTION_S / COLLECT_S) - 1):
        world.step(LOOK)
    assert world.objects.has(digest)
    pass_grace(world)
    assert not world.objects.has(digest)
    assert world.audit().problems == ()


def test_weights_that_a_site_is_fetching_stay(fast_tmp: Path) -> None:
    world = build_world(fast_tmp, run_config(coordinator={"keep_generations": 1}))
    (alpha, slow) = world.begin("alpha", "slow")
    slow.holds = None
    assert slow.ask()["work"] == "adopt"
    old = world.chain()[0]
    slow.beat("adopting")
    alpha.work()
    alpha.contribute(0.5)
    for done in range(2 + GRACE // LOOK):
        world.clock.advance(LOOK - 1000)
        slow.beat("adopting", done=done + 1)
        world.step(1000)
    assert len(world.chain()) == 2
    assert world.objects.has(old.weights) and not world.objects.has(old.master)
    world.restart()  # nobody knows now what it fetches
    for done in range(2 + GRACE // LOOK):
        slow.beat("adopting", done=1000 + done)
        world.step(LOOK)
        slow.beat("adopting", done=2000 + done)
    assert world.objects.has(old.weights)
    slow.ask()
    slow.beat("waiting")
    pass_grace(world)
    assert not world.objects.has(old.weights)


def test_delta_that_is_contributed_at_the_last_moment_stays(world: World) -> None:
    """It is contributed after it was found due and said to be removed, and before it is."""

    class Contributing(FailingDatabase):
        def write(self):  # type: ignore[no-untyped-def]
            if commits and alpha.lease is not None:
                assert send(alpha, digest).json()["accepted"] is True
                alpha.lease = None
            return super().write()

    alpha = rounds(world, 1)
    alpha.work()
    digest = world.put_delta(weights(0.9))
    retention, now = garbage.retention_of(world.config.coordinator), world.clock.now()
    garbage.collect(world.database, world.objects, retention, now)
    commits: list[bool] = []
    late = Instant(now + GRACE)
    assert digest in {mark.stored.digest for mark in garbage.look(world.database, world.objects, retention, late).due}
    racing = Contributing(world.database, lambda: commits.append(True) or True)
    assert garbage.collect(racing, world.objects, retention, late).removed == ()
    assert len(commits) == 2 and world.objects.has(digest)
    world.step(1000)
    assert world.audit().problems == ()


def test_contribution_of_a_removed_delta_is_asked_for_again(world: World) -> None:
    alpha = rounds(world, 1)
    alpha.work()
    digest = world.put_delta(weights(0.9))
    world.objects.delete(digest)
    response = send(alpha, digest)
    assert (response.status_code, response.json()["kind"]) == (409, "missing-blob")
    world.put_delta(weights(0.9))
    assert send(alpha, digest).json()["accepted"] is True


def test_delta_that_is_removed_while_it_is_judged_is_asked_for_again(world: World) -> None:
    class Removing(FailingDatabase):
        def write(self):  # type: ignore[no-untyped-def]
            world.objects.delete(digest)
            return super().write()

    alpha = rounds(world, 1)
    alpha.work()
    digest = world.put_delta(weights(0.9))
    world.service.database = Removing(world.database, lambda: True)
    response = send(alpha, digest)
    world.service.database = world.database
    assert (response.status_code, response.json()["kind"]) == (409, "missing-blob")
    world.put_delta(weights(0.9))
    assert send(alpha, digest).json()["accepted"] is True
    world.step(1000)
    assert world.audit().problems == ()


def test_crash_between_note_and_removal_only_repeats_it(fast_tmp: Path) -> None:
    class Dying(LocalObjectStore):
        def delete(self, digest: Digest) -> None:
            raise KeyboardInterrupt

    world = build_world(fast_tmp, run_config(coordinator={"keep_generations": 1}))
    rounds(world, 2)
    retention = garbage.retention_of(world.config.coordinator)
    garbage.collect(world.database, world.objects, retention, world.clock.now())
    world.clock.advance(GRACE)
    with pytest.raises(KeyboardInterrupt):
        garbage.collect(world.database, Dying(fast_tmp / "objects"), retention, world.clock.now())
    assert world.objects.has(world.chain()[0].master)
    assert world.audit().problems == ()
    world.restart()
    pass_grace(world)
    pass_grace(world)
    assert not world.objects.has(world.chain()[0].master)
    assert world.audit().problems == ()


def test_superseded_coordinator_removes_nothing(fast_tmp: Path) -> None:
    database = open_sqlite(fast_tmp / "run.sqlite")
    world = build_world(fast_tmp, run_config(coordinator={"keep_generations": 1}), database=database)
    rounds(world, 3)
    world.step(LOOK)
    successor = open_sqlite(fast_tmp / "run.sqlite")
    successor.take_over()
    before = kept(world)
    retention = garbage.retention_of(world.config.coordinator)
    with pytest.raises(Superseded):
        garbage.collect(database, world.objects, retention, Instant(world.clock.now() + GRACE))
    assert kept(world) == before
    successor.close()
    database.close()
