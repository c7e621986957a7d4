"""A contribution is judged before it counts, once, and answered the same however often it is sent (G3, G7)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.fakes import SHAPES, SiteDriver, World, build_world, run_config, sha256, weights, weights_bytes

from crosstrain.domain.block import BlockState


@pytest.fixture
def world(world_of_each: World) -> World:
    return world_of_each


def kind_of(response: httpx.Response) -> str:
    return str(response.json()["kind"])


def send(driver: SiteDriver, claim: dict[str, Any], token: int | None = None) -> httpx.Response:
    assert driver.lease is not None
    return driver.post(f"leases/{driver.lease['token'] if token is None else token}/contribution", **claim)


@pytest.fixture
def alpha(world: World) -> SiteDriver:
    """A site with a lease of four blocks, eight windows."""
    (driver,) = world.begin("alpha")
    driver.work()
    return driver


def test_contribution_of_the_whole_lease_is_accepted(world: World, alpha: SiteDriver) -> None:
    assert alpha.try_contribute().json() == {
        "accepted": True,
        "kind": "accepted",
        "reason": alpha.try_contribute().json()["reason"],
    }
    assert world.counts()[BlockState.CONTRIBUTED] == 4
    assert world.audit().problems == ()


def test_contribution_of_a_prefix_returns_the_rest(world: World, alpha: SiteDriver) -> None:
    alpha.contribute(blocks=3)
    counts = world.counts()
    assert (counts[BlockState.CONTRIBUTED], counts[BlockState.AVAILABLE]) == (3, world.blocks - 3)
    (row,) = world.status()["sites"]
    assert (row["contributed_blocks"], row["lost_blocks"]) == (3, 1)


def test_contribution_sent_again_gets_the_same_answer_and_changes_nothing(world: World, alpha: SiteDriver) -> None:
    delta = world.put_weights(weights(0.5), "BF16")
    claim = alpha.claim(delta)
    first = send(alpha, claim)
    before = world.dump()
    world.clock.advance(5000)
    assert send(alpha, claim).json() == first.json()
    assert world.dump() == before
    world.step()
    before = world.dump()
    assert send(alpha, claim).json() == first.json()
    assert world.dump() == before
    assert world.chain()[-1].contributions == 1


@pytest.mark.parametrize("loss", ["NaN", "Infinity", "-Infinity"])
def test_contribution_with_a_loss_that_is_not_finite_never_counts(world: World, alpha: SiteDriver, loss: str) -> None:
    import json

    claim = json.dumps(alpha.claim(world.put_weights(weights(0.5), "BF16"))).replace("2.5", loss)
    assert alpha.lease is not None
    path = f"leases/{alpha.lease['token']}/contribution"
    headers = {"content-type": "application/json"}
    first, again = (world.http.post(path, content=claim, headers=headers) for _ in range(2))
    assert first.status_code == again.status_code == 422
    assert world.counts()[BlockState.CONTRIBUTED] == 0


def test_contribution_with_another_content_is_refused(world: World, alpha: SiteDriver) -> None:
    alpha.try_contribute(0.5)
    before = world.dump()
    answer = alpha.try_contribute(0.25)
    assert (answer.status_code, kind_of(answer)) == (409, "contributed-already")
    assert world.dump() == before


def test_contribution_of_another_session_is_fenced(world: World, alpha: SiteDriver) -> None:
    beta = world.site("beta")
    before = world.dump()
    answer = alpha.try_contribute(session=beta.session)
    assert (answer.status_code, kind_of(answer)) == (409, "fenced")
    assert world.dump() == before


def test_contribution_of_an_unknown_lease_is_refused(world: World, alpha: SiteDriver) -> None:
    claim = alpha.claim(world.put_weights(weights(0.5), "BF16"))
    assert send(alpha, claim, token=99).status_code == 404


def test_contribution_after_expiry_is_kept_for_inspection_and_never_counts(world: World, alpha: SiteDriver) -> None:
    world.pass_time(10_000)
    ledger, counts = world.dump()["spans"], world.counts()
    answer = alpha.try_contribute().json()
    assert (answer["accepted"], answer["kind"], answer["reason"]) == (
        False,
        "lease-over",
        "lease 1 is expired, only a live lease can contribute",
    )
    assert (world.dump()["spans"], world.counts()) == (ledger, counts)
    assert len(world.dump()["contributions"]) == 1
    assert alpha.try_contribute().json() == answer
    world.step(60_000)
    assert len(world.chain()) == 1
    assert world.audit().problems == ()


def test_contribution_after_its_blocks_went_to_another_site_does_not_touch_them(
    world: World, alpha: SiteDriver
) -> None:
    world.pass_time(10_000)
    beta = world.site("beta")
    assert alpha.lease is not None
    assert beta.work()["spans"] == alpha.lease["spans"]
    assert alpha.try_contribute().json()["kind"] == "lease-over"
    beta.contribute()
    world.step()
    assert world.counts()[BlockState.MERGED] == 4
    assert world.audit().problems == ()


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"generation": 1}, "wrong-base"),
        ({"blocks": 5}, "wrong-blocks"),
        ({"blocks": 0}, "wrong-blocks"),
        ({"windows": 6}, "wrong-windows"),
        ({"windows": 10**9}, "wrong-windows"),
        ({"windows_digest": "6:" + "0" * 32}, "wrong-windows"),
        ({"tokens": 0}, "wrong-tokens"),
        ({"tokens": 65}, "wrong-tokens"),
        ({"steps": 0}, "wrong-steps"),
        ({"steps": 9}, "wrong-steps"),
    ],
)
def test_contribution_that_contradicts_its_lease_changes_nothing(
    world: World, alpha: SiteDriver, fields: dict[str, Any], kind: str
) -> None:
    before = world.dump()
    answer = alpha.try_contribute(**fields)
    assert (answer.status_code, kind_of(answer)) == (409, kind)
    assert world.dump() == before
    alpha.contribute()


def test_contribution_without_its_blob_is_refused_and_may_be_sent_later(world: World, alpha: SiteDriver) -> None:
    data = weights_bytes(weights(0.5), world.directory, "BF16")
    claim = alpha.claim(sha256(data))
    before = world.dump()
    assert kind_of(send(alpha, claim)) == "missing-blob"
    assert world.dump() == before
    world.put(data)
    assert send(alpha, claim).json()["accepted"] is True


def _truncated(world: World) -> bytes:
    return weights_bytes(weights(0.5), world.directory)[:-4]


def _garbage(_world: World) -> bytes:
    return b"PK\x03\x04 no weights at all" * 10


def _other_shape(world: World) -> bytes:
    return weights_bytes(weights(0.5, {**SHAPES, "norm": (5,)}), world.directory)


def _missing_tensor(world: World) -> bytes:
    return weights_bytes(weights(0.5, {"embed": (5, 3)}), world.directory)


def _other_name(world: World) -> bytes:
    return weights_bytes(weights(0.5, {"embed": (5, 3), "norm": (4,), "scales": (1,)}), world.directory)


def _more_tensors(world: World) -> bytes:
    return weights_bytes(weights(0.5, {**SHAPES, "z": (2,)}), world.directory)


@pytest.mark.parametrize(
    ("blob", "kind"),
    [
        (_truncated, "wrong-file"),
        (_garbage, "wrong-file"),
        (_other_shape, "wrong-model"),
        (_missing_tensor, "wrong-model"),
        (_other_name, "wrong-model"),
        (_more_tensors, "wrong-model"),
    ],
)
def test_contribution_with_a_blob_that_is_no_delta_of_the_model_changes_nothing(
    world: World, alpha: SiteDriver, blob: Callable[[World], bytes], kind: str
) -> None:
    before = world.dump()
    answer = send(alpha, alpha.claim(world.put(blob(world))))
    assert (answer.status_code, kind_of(answer)) == (409, kind)
    assert answer.json()["hint"] or kind == "wrong-file"
    assert world.dump() == before


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_contribution_with_one_element_not_finite_is_refused_and_its_blocks_return(
    world: World, alpha: SiteDriver, value: float
) -> None:
    tensors = weights(0.5)
    tensors["norm"][2] = value
    claim = alpha.claim(world.put_weights(tensors, "BF16"))
    answer = send(alpha, claim)
    assert (answer.status_code, answer.json()["accepted"], kind_of(answer)) == (200, False, "not-finite")
    assert send(alpha, claim).json() == answer.json()
    assert world.counts()[BlockState.AVAILABLE] == world.blocks
    world.step(60_000)
    assert len(world.chain()) == 1
    assert alpha.work()["spans"] == [[0, 0, 4]]
    assert world.audit().problems == ()


def test_contribution_with_a_huge_norm_is_refused_once_the_usual_norm_is_known(fast_tmp: Path) -> None:
    world = build_world(fast_tmp, run_config(run={"rounds": 20}), windows=200)
    (alpha,) = world.begin("alpha")
    for _ in range(5):
        alpha.work()
        alpha.contribute()
        world.step(1000)
    huge = {name: tensor * 1000 for name, tensor in weights(0.5).items()}
    alpha.work()
    answer = send(alpha, alpha.claim(world.put_weights(huge, "BF16")))
    assert (answer.json()["accepted"], kind_of(answer)) == (False, "norm")
    assert "running median" in answer.json()["reason"]
    assert world.counts()[BlockState.LEASED] == 0
    alpha.work()
    alpha.contribute()
    world.step(1000)
    assert world.chain()[-1].number == 6
    assert world.audit().problems == ()


def test_contribution_while_the_round_is_merged_comes_too_late(world: World) -> None:
    alpha, beta = world.begin("alpha", "beta")
    alpha.work()
    beta.work()
    alpha.contribute()
    world.execute("UPDATE rounds SET closing_at = 1, reason = 'its cutoff passed' WHERE generation = 0")
    answer = beta.try_contribute().json()
    assert (answer["accepted"], answer["kind"]) == (False, "stale-base")
    assert "its cutoff passed" in answer["reason"]
    reply = alpha.ask()
    assert (reply["work"], reply["reason"]) == ("wait", "waiting for generation 1 to be merged: its cutoff passed")


def test_contribution_sent_by_many_threads_at_once_counts_once(fast_tmp: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from tests.fakes import sqlite_file

    with sqlite_file(fast_tmp / "run.sqlite") as database:
        world = build_world(fast_tmp, database=database)
        (alpha,) = world.begin("alpha")
        alpha.work()
        claim = alpha.claim(world.put_weights(weights(0.5), "BF16"))
        with ThreadPoolExecutor(6) as pool:
            answers = [future.result().json() for future in [pool.submit(send, alpha, claim) for _ in range(12)]]
        assert all(answer == answers[0] for answer in answers)
        assert world.counts()[BlockState.CONTRIBUTED] == 4
        assert world.audit().problems == ()


def test_requests_of_many_sites_at_once_never_share_a_block(fast_tmp: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from tests.fakes import sqlite_file

    with sqlite_file(fast_tmp / "run.sqlite") as database:
        world = build_world(fast_tmp, database=database)
        drivers = world.begin(*(f"site-{number}" for number in range(5)))
        with ThreadPoolExecutor(5) as pool:
            leases = [future.result() for future in [pool.submit(driver.work) for driver in drivers]]
        taken = [p for lease in leases for _, start, stop in lease["spans"] for p in range(start, stop)]
        assert sorted(taken) == list(range(world.counts()[BlockState.LEASED]))
        assert world.audit().problems == ()
