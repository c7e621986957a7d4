"""Deltas that were accepted and then damaged on the coordinator's disk: the round is merged without them, and their blocks are
trained again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fakes import SiteDriver, World, build_world, run_config, weights

from crosstrain.coordinator.ledger_report import ledger_report
from crosstrain.domain.block import BlockState
from crosstrain.domain.ids import Digest
from crosstrain.errors import IntegrityError


def _cut(blob: Path) -> None:
    blob.write_bytes(blob.read_bytes()[:-1])


def _emptied(blob: Path) -> None:
    blob.write_bytes(b"")


DAMAGE = (Path.unlink, _cut, _emptied)


@pytest.fixture(params=["none", "planes"])
def world(request: pytest.FixtureRequest, fast_tmp: Path) -> World:
    return build_world(fast_tmp, run_config(wire={"compress": request.param}))


def blob_of(site: SiteDriver) -> Path:
    """The delta that the site contributed last."""
    with site.world.database.read() as connection:
        query = "SELECT delta FROM contributions WHERE site = ? ORDER BY token DESC"
        return site.world.objects.path(Digest(connection.exec_driver_sql(query, (site.name,)).scalars().all()[0]))


def contributes(site: SiteDriver, damage: Callable[[Path], None] | None = None, value: float = 0.5) -> None:
    """A phase whose delta is damaged after it was accepted; the coordinator is not the one that looked at it any more."""
    site.work()
    site.contribute(value)
    if damage is not None:
        damage(blob_of(site))
        site.world.restart()


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_round_is_merged_without_a_delta_that_cannot_be_read(world: World, damage: Callable[[Path], None]) -> None:
    alpha, beta = world.begin("alpha", "beta")
    contributes(alpha, damage)
    contributes(beta, value=0.25)
    world.step(1000)
    assert world.chain()[-1].contributions == 1
    with world.database.read() as connection:
        query = "SELECT site, state, reason FROM leases ORDER BY token"
        (site, state, reason), (_, merged, _) = connection.exec_driver_sql(query).all()
    assert (site, state, merged) == ("alpha", "dropped", "merged")
    assert "cannot be read any more" in reason
    assert world.counts()[BlockState.MERGED] == 4 and world.counts()[BlockState.CONTRIBUTED] == 0
    assert world.audit(replay=True).problems == () == ledger_report(world.database).problems


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_round_that_has_no_other_is_opened_again(world: World, damage: Callable[[Path], None]) -> None:
    (alpha,) = world.begin("alpha")
    contributes(alpha, damage)
    world.step(300_000)
    assert world.chain()[-1].number == 0
    assert world.status()["waiting"] == "waiting for a contribution: what the round had cannot be read any more"
    world.step(1000)
    assert world.counts()[BlockState.AVAILABLE] == world.blocks
    alpha.register()
    contributes(alpha, value=0.25)
    world.step(1000)
    assert world.chain()[-1].contributions == 1
    assert world.audit(replay=True).problems == () == ledger_report(world.database).problems


def test_what_the_site_sends_again_of_it_is_not_accepted(world: World) -> None:
    (alpha,) = world.begin("alpha")
    alpha.work()
    assert alpha.lease is not None
    claim, token = alpha.claim(world.put_delta(weights(0.5))), alpha.lease["token"]
    assert alpha.post(f"leases/{token}/contribution", **claim).json()["accepted"]
    _cut(blob_of(alpha))
    world.restart()
    world.step(300_000)
    answer = alpha.post(f"leases/{token}/contribution", **claim).json()
    assert (answer["accepted"], answer["kind"]) == (False, "damaged")


def test_weights_that_cannot_be_read_end_the_coordinator_with_what_to_do(world: World) -> None:
    (alpha,) = world.begin("alpha")
    contributes(alpha)
    _cut(world.objects.path(world.chain()[0].master))
    with pytest.raises(IntegrityError) as raised:
        world.step(1000)
    assert raised.value.message.startswith("Generation 0 cannot be followed: ")
    assert "backup" in raised.value.hint


def test_weights_that_are_gone_before_a_round_begins_end_it_with_what_to_do(world: World) -> None:
    world.begin("alpha")
    world.objects.path(world.chain()[0].weights).unlink()
    with pytest.raises(IntegrityError, match="Generation 0 cannot be followed: Expected blob") as raised:
        world.step(1000)
    assert "backup" in raised.value.hint
