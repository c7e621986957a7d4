"""What the status says of a site that is gone, and what it measured of one that was there."""

from __future__ import annotations

from tests.fakes import World


def test_a_site_that_left_is_told_from_one_that_fell_silent(world: World) -> None:
    alpha, beta = world.begin("alpha", "beta")
    alpha.expect("end", reason="the job ends")
    world.pass_time(120_000)
    said = {row["name"]: (row["alive"], row["doing"]) for row in world.status()["sites"]}
    assert said["alpha"] == (False, "left: the job ends")
    assert said["beta"][1].startswith("not heard of")
    world.site("alpha")
    assert {row["name"]: row["alive"] for row in world.status()["sites"]} == {"alpha": True, beta.name: False}


def test_what_is_carried_beside_the_work_is_said_behind_it(world: World) -> None:
    (alpha,) = world.begin("alpha")
    alpha.work()
    carried = "upload 40.0 of 100.0 MB, 20.0 MB/s, 3 s left"
    for phase in ("training", "waiting"):
        alpha.beat(phase, done=3, total=8, detail="why", beside=carried)
        (row,) = world.status()["sites"]
        assert row["doing"].endswith(f"; {carried}") and row["doing"] != f"; {carried}"


def test_a_contribution_keeps_the_measured_round_trip(world: World) -> None:
    (alpha,) = world.begin("alpha")
    alpha.work()
    alpha.beat(rtt_ms=347.0)
    alpha.contribute()
    assert [row["rtt_ms"] for row in world.status()["sites"]] == [347.0]
