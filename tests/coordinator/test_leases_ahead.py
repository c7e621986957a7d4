"""Leases that are granted ahead of their generation (`round.overlap`), against the coordinator's real requests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.fakes import SHAPES, SiteDriver, World, build_world, run_config, weights

from crosstrain.domain.block import BlockState
from crosstrain.domain.lease import LeaseState
from crosstrain.storage import lease_store


@pytest.fixture
def world(fast_tmp: Path) -> World:
    """As everywhere, with overlap."""
    return build_world(fast_tmp, run_config(round={"overlap": True}))


def ask_ahead(driver: SiteDriver, steps: int | None = 4) -> dict[str, Any]:
    """Asks as a site does that has trained the lease it holds; that lease stays the driver's."""
    assert driver.lease is not None
    reply: dict[str, Any] = driver.expect(
        "next", holds=None, ahead={"token": driver.lease["token"], "global_step": steps}
    )
    return reply


def state(world: World, token: int) -> LeaseState:
    with world.database.read() as connection:
        found = lease_store.find(connection, token)
    assert found is not None
    return found.state


def ahead_of(world: World, driver: SiteDriver) -> dict[str, Any]:
    driver.work()
    reply = ask_ahead(driver)
    assert reply["work"] == "train", reply
    lease: dict[str, Any] = reply["lease"]
    return lease


def test_a_trained_site_gets_other_blocks_for_the_next_round(world: World) -> None:
    (alpha,) = world.begin("alpha")
    first = alpha.work()
    reply = ask_ahead(alpha)
    assert reply["work"] == "train" and reply["reason"].startswith("ahead of generation 1")
    assert (reply["lease"]["generation"], reply["lease"]["global_step"]) == (1, 4)
    assert first["spans"][-1][2] == reply["lease"]["spans"][0][1]
    assert ask_ahead(alpha)["lease"] == reply["lease"]
    assert world.counts()[BlockState.LEASED] == 8
    assert world.audit().ok


def test_the_open_round_neither_waits_for_it_nor_takes_it_back(world: World) -> None:
    (alpha,) = world.begin("alpha")
    later = ahead_of(world, alpha)
    alpha.contribute()
    world.step()
    assert [record.number for record in world.chain()] == [0, 1]
    assert state(world, later["token"]) is LeaseState.LIVE
    alpha.lease = later
    alpha.contribute()
    world.step()
    newest = world.chain()[-1]
    assert (newest.number, newest.contributions) == (2, 1)
    assert state(world, later["token"]) is LeaseState.MERGED
    assert world.audit().ok


def test_it_cannot_be_contributed_before_its_generation(world: World) -> None:
    (alpha,) = world.begin("alpha")
    later = ahead_of(world, alpha)
    alpha.lease = later
    reply = alpha.try_contribute().json()
    assert (reply["accepted"], reply["kind"]) == (False, "stale-base")
    assert state(world, later["token"]) is LeaseState.REFUSED
    assert world.audit().ok


def _release(_world: World, alpha: SiteDriver) -> None:
    assert alpha.release().status_code == 200


def _lapse(world: World, alpha: SiteDriver) -> None:
    world.pass_time(15_000)


def _leave(_world: World, alpha: SiteDriver) -> None:
    alpha.expect("end", reason="its job ends")


def _take_over(_world: World, alpha: SiteDriver) -> None:
    alpha.register()


@pytest.mark.parametrize("end", [_release, _lapse, _leave, _take_over])
def test_it_falls_with_the_lease_that_it_follows(world: World, end: Callable[[World, SiteDriver], None]) -> None:
    (alpha,) = world.begin("alpha")
    later = ahead_of(world, alpha)
    assert alpha.lease is not None
    first = alpha.lease["token"]
    end(world, alpha)
    assert {state(world, first), state(world, later["token"])} <= {LeaseState.RELEASED, LeaseState.EXPIRED}
    assert world.counts()[BlockState.AVAILABLE] == world.blocks
    assert world.audit().ok


def test_it_falls_with_a_contribution_that_is_refused(world: World) -> None:
    (alpha,) = world.begin("alpha")
    later = ahead_of(world, alpha)
    assert alpha.lease is not None
    first = alpha.lease["token"]
    damaged = {name: np.full(shape, np.nan, np.float32) for name, shape in SHAPES.items()}
    claim = alpha.claim(world.put_delta(damaged))
    assert alpha.post(f"leases/{first}/contribution", **claim).json()["kind"] == "not-finite"
    assert (state(world, first), state(world, later["token"])) == (LeaseState.REFUSED, LeaseState.RELEASED)
    assert world.counts()[BlockState.AVAILABLE] == world.blocks
    assert world.audit().ok


@pytest.mark.parametrize("others", [False, True])
def test_it_falls_with_a_delta_that_is_lost_after_it_was_accepted_and_the_site_is_told(
    world: World, others: bool
) -> None:
    """In a round that is opened again nobody would go on otherwise: the site waits for the generation, and the round for the site."""
    alpha, beta = world.begin("alpha", "beta")
    later = ahead_of(world, alpha)
    assert alpha.lease is not None
    first = alpha.lease["token"]
    claim = alpha.claim(world.put_delta(weights(0.5)))
    assert alpha.post(f"leases/{first}/contribution", **claim).json()["accepted"]
    world.objects.path(claim["delta"]).write_bytes(b"")
    if others:
        beta.work()
        beta.contribute(0.25)
    else:
        beta.expect("end", reason="its job ends")
    world.step(1000)
    assert (state(world, first), state(world, later["token"])) == (LeaseState.DROPPED, LeaseState.RELEASED)
    assert len(world.chain()) == 1 + others
    refused = alpha.post(f"sessions/{alpha.session}/next", holds=None, ahead={"token": first, "global_step": None})
    assert (refused.status_code, refused.json()["kind"]) == (409, "dropped")
    assert not world.objects.has(claim["delta"])
    alpha.lease = None
    assert alpha.expect("next", holds=len(world.chain()) - 1)["work"] in ("train", "evaluate")
    assert world.audit().ok


def test_a_cutoff_without_the_finished_phase_takes_it_along(world: World) -> None:
    alpha, beta = world.begin("alpha", "beta")
    later = ahead_of(world, alpha)
    beta.work()
    beta.contribute()
    assert alpha.lease is not None
    for second in range(210):
        world.clock.advance(1000)
        alpha.beat(token=later["token"], sending=alpha.lease["token"], sent=second)
        beta.beat()
        world.step()
    assert len(world.chain()) == 2
    assert state(world, alpha.lease["token"]) is LeaseState.RELEASED
    assert state(world, later["token"]) is LeaseState.RELEASED
    assert world.audit().ok


def test_a_new_session_keeps_the_finished_phase_and_not_the_one_ahead(world: World) -> None:
    (alpha,) = world.begin("alpha")
    later = ahead_of(world, alpha)
    assert alpha.lease is not None
    reply = alpha.register(holding=[alpha.lease["token"]])
    assert [lease["token"] for lease in reply["kept"]] == [alpha.lease["token"]]
    assert state(world, later["token"]) is LeaseState.RELEASED
    alpha.contribute()


def test_heartbeats_renew_both_leases(world: World) -> None:
    (alpha,) = world.begin("alpha")
    later = ahead_of(world, alpha)
    assert alpha.lease is not None
    for second in range(60):
        world.clock.advance(1000)
        assert alpha.beat(token=later["token"], sending=alpha.lease["token"], sent=second)["lease_alive"]
        world.step()
    assert state(world, alpha.lease["token"]) is state(world, later["token"]) is LeaseState.LIVE


def test_a_sending_that_stands_still_is_not_hidden_by_a_training_that_goes_on(world: World) -> None:
    (alpha,) = world.begin("alpha")
    later = ahead_of(world, alpha)
    assert alpha.lease is not None
    for _ in range(130):
        world.clock.advance(1000)
        alpha.beat(token=later["token"], sending=alpha.lease["token"], sent=7)
        world.step()
    assert state(world, alpha.lease["token"]) is LeaseState.EXPIRED
    assert state(world, later["token"]) is LeaseState.RELEASED


def test_waiting_for_the_generation_is_no_lack_of_progress(world: World) -> None:
    alpha, beta = world.begin("alpha", "beta")
    beta.work()
    later = ahead_of(world, alpha)
    alpha.contribute()
    for _ in range(140):
        world.clock.advance(1000)
        alpha.beat("waiting", done=0, token=later["token"])
        beta.beat()
        world.step()
    assert state(world, later["token"]) is LeaseState.LIVE


def test_the_cutoff_of_the_open_round_does_not_drain_it(world: World) -> None:
    alpha, beta = world.begin("alpha", "beta")
    beta.work()
    later = ahead_of(world, alpha)
    alpha.contribute()
    world.pass_time(160_000, beta)
    assert beta.beat()["drain"]
    assert not alpha.beat(token=later["token"])["drain"]


def test_the_next_round_begins_when_it_is_open(world: World) -> None:
    alpha, beta = world.begin("alpha", "beta")
    beta.work()
    later = ahead_of(world, alpha)
    alpha.contribute()
    for _ in range(100):
        world.clock.advance(1000)
        alpha.beat("waiting", token=later["token"])
        beta.beat()
    beta.contribute()
    world.step()
    assert world.chain()[-1].number == 1
    with world.database.read() as connection:
        assert lease_store.round_begun(connection, 1) == world.clock.now()


def test_the_generation_is_told_when_it_is_there_and_measured_by_one(fast_tmp: Path) -> None:
    world = build_world(fast_tmp, run_config(round={"overlap": True}, heldout={"windows": 4}))
    alpha, beta = world.begin("alpha", "beta")
    for driver in (alpha, beta):
        driver.work()
    assert ask_ahead(alpha, steps=None)["work"] == "wait"
    firsts = [driver.lease for driver in (alpha, beta)]
    for driver in (alpha, beta):
        assert ask_ahead(driver)["work"] == "train"
        driver.contribute()
    world.step()
    for driver, first in zip((alpha, beta), firsts, strict=True):
        driver.lease = first
    replies = [ask_ahead(driver, steps=None) for driver in (alpha, beta)]
    newest = world.chain()[-1]
    assert [(reply["work"], reply["generation"], reply["weights"]) for reply in replies] == [
        ("adopt", 1, newest.weights)
    ] * 2
    assert [reply["measure"] for reply in replies] == [True, False]


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"round": {"overlap": False}}, "overlap` is off"),
        ({"round": {"overlap": True}, "run": {"rounds": 1}}, "no round"),
    ],
)
def test_nothing_is_granted_ahead_without_overlap_or_without_a_round(
    fast_tmp: Path, sections: dict[str, dict[str, Any]], sentence: str
) -> None:
    world = build_world(fast_tmp, run_config(**sections))
    (alpha,) = world.begin("alpha")
    alpha.work()
    reply = ask_ahead(alpha)
    assert reply["work"] == "wait" and sentence in reply["reason"]


def test_another_sites_lease_is_not_followed(world: World) -> None:
    alpha, beta = world.begin("alpha", "beta")
    alpha.work()
    beta.work()
    beta.lease = alpha.lease
    assert ask_ahead(beta)["work"] == "wait"
