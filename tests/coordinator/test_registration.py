"""The handshake: what must be equal is compared, and a newer session of a site supersedes the older one (G3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.fakes import World, build_world, run_config

from crosstrain.domain.block import BlockState
from crosstrain.wire.messages import Fingerprint


@pytest.fixture
def world(world_of_each: World) -> World:
    return world_of_each


def test_register_gives_a_new_session_every_time(world: World) -> None:
    first, second = world.site("alpha"), world.site("beta")
    assert second.session > first.session
    rows = {row["name"]: row for row in world.status()["sites"]}
    assert set(rows) == {"alpha", "beta"}
    assert rows["alpha"]["alive"] and rows["alpha"]["phase"] == "booting"


@pytest.mark.parametrize("field", list(Fingerprint.model_fields))
def test_register_with_another_field_is_refused_by_its_name(world: World, field: str) -> None:
    driver = world.site("alpha")
    document = driver.registration()
    value = document["fingerprint"][field]
    document["fingerprint"][field] = "f" * 64 if isinstance(value, str) else value + 1
    response = driver.post("sessions", **document)
    assert response.status_code == 409
    problem = response.json()
    assert problem["kind"] == f"{field.replace('_', '-')}-mismatch"
    assert problem["detail"].startswith(f"{field} of site alpha differs")
    assert problem["hint"]


def test_register_names_the_cause_rather_than_the_spec_that_contains_it(world: World) -> None:
    driver = world.site("alpha")
    document = driver.registration()
    document["fingerprint"] |= {"spec_digest": "f" * 64, "seed": 8}
    assert driver.post("sessions", **document).json()["kind"] == "seed-mismatch"


def test_register_with_another_protocol_is_refused_with_the_version_to_install(world: World) -> None:
    driver = world.site("alpha")
    problem = driver.post("sessions", **driver.registration(protocol=2, version="9.9")).json()
    assert problem["kind"] == "version-mismatch"
    assert "9.9" in problem["detail"] and "install crosstrain" in problem["hint"]


def test_newer_session_supersedes_the_older_one(world: World) -> None:
    (old,) = world.begin("alpha")
    lease = old.work()
    new = world.site("alpha")
    for action, document in _session_requests(old.holds):
        response = old.post(f"sessions/{old.session}/{action}", **document)
        assert response.status_code == 410, action
        assert response.json()["kind"] == "superseded"
    assert world.counts()[BlockState.LEASED] == 0
    assert old.expect("end", reason="late") == {"accepted": True, "reason": "left"}
    answer = old.try_contribute()
    assert answer.json()["kind"] == "lease-over"
    new.holds = 0
    assert new.work()["token"] > lease["token"]
    assert world.audit().problems == ()


def test_newer_session_keeps_the_lease_whose_work_it_still_has(world: World) -> None:
    (old,) = world.begin("alpha")
    lease = old.work()
    new = world.site("alpha", holding=[lease["token"], 99])
    assert new.register(holding=[lease["token"], 99])["kept"] == [lease]
    fenced = old.try_contribute()
    assert (fenced.status_code, fenced.json()["kind"]) == (409, "fenced")
    assert old.release().json()["kind"] == "fenced"
    new.lease = lease
    new.contribute()
    world.step()
    assert world.chain()[-1].contributions == 1
    assert world.audit().problems == ()


def test_kept_lease_survives_the_boot_of_its_trainer_and_no_longer(fast_tmp: Path) -> None:
    world = build_world(fast_tmp, run_config(lease={"boot_patience_s": 40}))
    (old,) = world.begin("alpha")
    lease = old.work()
    world.site("alpha", holding=[lease["token"]])
    world.pass_time(39_000)
    world.step(999)
    assert world.counts()[BlockState.LEASED] == 4
    world.step(1)
    assert world.counts()[BlockState.LEASED] == 0


def test_session_that_ends_gives_its_lease_back_and_may_end_twice(world: World) -> None:
    (alpha,) = world.begin("alpha")
    alpha.work()
    assert alpha.expect("end", reason="walltime") == alpha.expect("end", reason="walltime")
    assert world.counts()[BlockState.AVAILABLE] == world.blocks
    assert alpha.post(f"sessions/{alpha.session}/beat", phase="training").status_code == 410
    assert [row["alive"] for row in world.status()["sites"]] == [False]
    assert world.audit().problems == ()


@pytest.mark.parametrize("action", ["beat", "next", "initial", "evaluation", "end"])
def test_session_unknown_is_refused_by_every_request(world: World, action: str) -> None:
    document = dict([*_session_requests(0), ("end", {"reason": "walltime"})])[action]
    response = world.http.post(f"sessions/77/{action}", json=document)
    assert (response.status_code, response.json()["kind"]) == (404, "unknown-session")


def _session_requests(holds: int | None) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("beat", {"phase": "training"}),
        ("next", {"holds": holds}),
        ("initial", {"weights": "a" * 64}),
        ("evaluation", {"generation": 0, "nll": 1.0, "tokens": 2}),
    ]
