"""Leases end when they should, to the millisecond, and never because the coordinator itself was away (G8)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fakes import CrashError, FailingDatabase, World, build_world, run_config, sqlite_file

from crosstrain.domain.block import BlockState
from crosstrain.errors import EnvironmentFault

TTL = 10_000


def leased(world: World) -> int:
    return world.counts()[BlockState.LEASED]


def test_lease_expires_exactly_one_ttl_after_its_grant(world: World) -> None:
    (alpha,) = world.begin("alpha")
    assert alpha.work()["ttl_ms"] == TTL
    world.pass_time(TTL - 1000)
    world.step(999)
    assert leased(world) == 4
    world.step(1)
    assert leased(world) == 0
    assert alpha.beat()["lease_alive"] is False
    (row,) = world.status()["sites"]
    assert (row["ttl_expiries"], row["lost_blocks"], row["granted_blocks"]) == (1, 4, 4)
    assert world.audit().problems == ()


def test_heartbeat_renews_for_exactly_one_ttl(world: World) -> None:
    (alpha,) = world.begin("alpha")
    alpha.work()
    world.pass_time(7000)
    assert alpha.beat()["lease_alive"] is True
    world.pass_time(TTL - 1000)
    world.step(999)
    assert leased(world) == 4
    world.step(1)
    assert leased(world) == 0


def test_heartbeat_of_another_session_renews_nothing(world: World) -> None:
    alpha, beta = world.begin("alpha", "beta")
    token = alpha.work()["token"]
    world.pass_time(5000)
    assert beta.beat(token=token)["lease_alive"] is False
    world.pass_time(5000)
    assert leased(world) == 0


def test_heartbeat_without_progress_does_not_keep_a_lease_beyond_patience(world: World) -> None:
    (alpha,) = world.begin("alpha")
    alpha.work()
    alpha.beat(done=5)
    patience = round(1000 * world.config.lease.phase_patience_s)
    for _ in range(patience // 1000 - 1):
        world.clock.advance(1000)
        assert alpha.beat(done=5)["lease_alive"] is True
        world.step()
    world.step(999)
    assert leased(world) == 4
    world.step(1)
    assert leased(world) == 0


def test_heartbeat_with_progress_keeps_a_lease_without_end(world: World) -> None:
    (alpha,) = world.begin("alpha")
    alpha.work()
    world.pass_time(400_000, alpha, every=5000)
    assert leased(world) == 4


def test_ttl_grows_with_the_measured_round_trip_and_step_time(world: World) -> None:
    (alpha,) = world.begin("alpha")
    alpha.beat("waiting", rtt_ms=500.0)
    alpha.work()
    alpha.contribute(seconds=80.0)
    world.step()
    world.pass_time(0, alpha)
    lease = alpha.work()
    assert lease["ttl_ms"] == 2.5 * 80_000 / 4 + 2 * 500
    (row,) = world.status()["sites"]
    assert row["rtt_ms"] == 500.0


def test_restart_gives_every_live_lease_a_full_ttl(fast_tmp: Path) -> None:
    path = fast_tmp / "run.sqlite"
    with sqlite_file(path) as database, sqlite_file(path) as again:
        world = build_world(fast_tmp, database=database)
        (alpha,) = world.begin("alpha")
        alpha.work()
        world.clock.advance(9_000_000)
        world.restart(again)
        world.step()
        world.step(TTL - 1)
        assert leased(world) == 4
        assert alpha.beat()["lease_alive"] is True
        world.pass_time(TTL)
        assert leased(world) == 0
        assert world.audit().problems == ()


def test_stall_of_the_coordinator_is_not_held_against_the_sites(world: World) -> None:
    alpha, beta = world.begin("alpha", "beta")
    alpha.work()
    beta.beat("adopting")
    world.step(60_000)
    assert leased(world) == 4
    assert [row["alive"] for row in world.status()["sites"]] == [True, True]
    world.pass_time(TTL - 1000)
    assert leased(world) == 4
    world.pass_time(1000)
    assert leased(world) == 0
    assert [row["alive"] for row in world.status()["sites"]] == [False, False]


def test_short_absence_of_the_coordinator_is_not_counted_as_silence(world: World) -> None:
    (alpha,) = world.begin("alpha")
    alpha.work()
    world.pass_time(TTL - 2000)
    world.step(4000)  # 1 s was planned, 3 s it was away: 9 s of silence are heard
    assert leased(world) == 4
    world.step(1000)
    assert leased(world) == 0


def test_slow_steps_of_the_loop_do_not_keep_a_dead_lease_for_ever(world: World) -> None:
    (alpha,) = world.begin("alpha")
    alpha.work()
    for _ in range(10):
        world.step(5000)
    assert leased(world) == 0


def test_expiry_that_could_not_be_written_is_made_up_for(fast_tmp: Path) -> None:
    world = build_world(fast_tmp)
    (alpha,) = world.begin("alpha")
    alpha.work()
    world.pass_time(TTL - 1000)
    healthy = world.service.database
    world.service.database = FailingDatabase(healthy, lambda: False)
    with pytest.raises(CrashError):
        world.step(1000)
    world.service.database = healthy
    world.pass_time(TTL)
    assert leased(world) == 0


def test_next_work_twice_gives_the_same_lease(world: World) -> None:
    (alpha,) = world.begin("alpha")
    first = alpha.work()
    before = world.dump()
    again = alpha.ask()
    assert (again["work"], again["lease"]) == ("train", first)
    assert world.dump() == before


def test_next_work_of_a_site_that_lost_its_weights_gives_them_and_then_the_same_lease(world: World) -> None:
    (alpha,) = world.begin("alpha")
    lease = alpha.work()
    alpha.holds = None
    assert alpha.ask()["work"] == "adopt"
    alpha.holds = 0
    assert alpha.ask()["lease"] == lease


def test_release_twice_is_one_release(world: World) -> None:
    (alpha,) = world.begin("alpha")
    alpha.work()
    assert alpha.release().json() == {"accepted": True, "reason": "released"}
    before = world.dump()
    assert alpha.release().json()["reason"] == "lease 1 is released already"
    assert world.dump() == before
    assert world.counts()[BlockState.AVAILABLE] == world.blocks


def test_release_of_an_unknown_lease_is_refused(world: World) -> None:
    (alpha,) = world.begin("alpha")
    response = alpha.post("leases/9/release", session=alpha.session, reason="x")
    assert (response.status_code, response.json()["kind"]) == (404, "unknown-lease")


def test_released_blocks_are_leased_again_first(world: World) -> None:
    alpha, beta = world.begin("alpha", "beta")
    first = alpha.work()
    alpha.release()
    assert beta.work()["spans"] == first["spans"]


def test_job_that_ends_soon_gets_only_what_it_can_train(world: World) -> None:
    (alpha,) = world.begin("alpha")
    assert alpha.work(max_blocks=2)["spans"] == [[0, 0, 2]]


def test_slower_site_gets_a_lease_that_ends_with_the_round(world: World) -> None:
    alpha, beta = world.begin("alpha", "beta")
    alpha.work()
    beta.work()
    world.pass_time(4000, alpha, beta)
    alpha.contribute()
    world.pass_time(4000, alpha, beta)
    beta.contribute()
    world.step()
    world.pass_time(1000, alpha, beta)
    assert alpha.work()["spans"] == [[0, 8, 12]]
    assert beta.work()["spans"] == [[0, 12, 14]]


def test_site_that_comes_back_after_days_in_a_queue_gets_a_full_phase(world: World) -> None:
    (alpha,) = world.begin("alpha")
    alpha.work()
    world.pass_time(4000, alpha)
    alpha.contribute()
    world.step()
    alpha.expect("end", reason="walltime")
    world.step(5 * 86_400_000)
    back = world.site("alpha")
    assert back.work()["spans"] == [[0, 4, 8]]
    assert back.beat()["drain"] is False


def test_lease_is_named_as_over_when_the_round_closed_without_it(world: World) -> None:
    alpha, beta = world.begin("alpha", "beta")
    alpha.work()
    beta.work()
    beta.contribute()
    world.pass_time(196_000, alpha, every=4000)
    reply = alpha.beat()
    assert (reply["lease_alive"], reply["drain"]) == (True, True)
    assert "stop at the next block boundary" in reply["reason"]
    world.pass_time(4000, alpha, every=4000)
    assert world.chain()[-1].number == 1
    reply = alpha.beat()
    assert (reply["lease_alive"], reply["generation"]) == (False, 1)
    late = alpha.try_contribute()
    assert late.json()["kind"] == "lease-over"
    assert world.audit().problems == ()


def test_work_near_the_cutoff_waits_for_the_next_round(world: World) -> None:
    alpha, beta = world.begin("alpha", "beta")
    alpha.work()
    world.pass_time(152_000, alpha, every=4000)
    reply = beta.ask()
    assert (reply["work"], reply["until_ms"]) == ("wait", 48_000)
    assert reply["reason"] == "the round is about to close; waiting for the next"


def test_full_disk_answers_507_and_nothing_is_lost(world: World) -> None:
    (alpha,) = world.begin("alpha")
    before = world.dump()

    def refuse() -> bool:
        raise EnvironmentFault("The database cannot be written: database or disk is full.", "free disk space")

    healthy = world.service.database
    world.service.database = FailingDatabase(world.database, refuse)
    response = alpha.post(f"sessions/{alpha.session}/next", holds=0)
    assert (response.status_code, response.json()["kind"]) == (507, "coordinator-fault")
    assert world.dump() == before
    world.service.database = healthy
    assert alpha.work()["token"] == 1


def test_start_waits_for_the_sites_asked_for_and_says_so(fast_tmp: Path) -> None:
    world = build_world(fast_tmp, run_config(round={"start_when_sites": 2, "start_after_s": 100}))
    (alpha,) = world.begin("alpha")
    reply = alpha.ask()
    assert reply["work"] == "wait"
    assert "waiting for 2 sites, 1 came" in reply["reason"]
    assert reply["until_ms"] == 100_000
    world.pass_time(99_000, alpha)
    assert alpha.ask()["work"] == "wait"
    world.pass_time(1000, alpha)
    assert alpha.ask()["work"] == "train"
