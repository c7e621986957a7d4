"""Rounds: 0, 1 or N sites are all normal, and the merge is the arithmetic of a few lines of numpy (G4, G5)."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from tests.fakes import SHAPES, World, build_world, read_weights, run_config, weights

from crosstrain.domain.block import BlockState
from crosstrain.domain.ids import Digest

ETA, BETA = np.float32(0.7), np.float32(0.9)


def tensors_of(world: World, digest: Digest | None) -> dict[str, np.ndarray]:
    assert digest is not None
    return read_weights(world.objects.path(digest))


def rounded(array: np.ndarray) -> np.ndarray:
    """As the wire carries it."""
    return array.astype(ml_dtypes.bfloat16).astype(np.float32)


def test_nothing_happens_without_sites_or_contributions(world: World) -> None:
    for _ in range(5):
        world.step(10_000)
    assert world.chain() == ()
    assert world.status()["waiting"] == "waiting for a site to make generation 0"
    world.begin("alpha")
    before = world.dump()
    for _ in range(100):
        world.step(50_000)
    assert world.dump() == before
    assert world.status()["waiting"] == "waiting for a site to take a lease"
    assert world.audit().problems == ()


def test_generation_0_comes_from_one_site_while_others_wait(world: World) -> None:
    alpha, beta = world.site("alpha"), world.site("beta")
    assert alpha.ask()["work"] == "initialise"
    reply = beta.ask()
    assert (reply["work"], reply["reason"]) == ("wait", "waiting for generation 0, which another site is making")
    assert alpha.ask()["work"] == "initialise"
    alpha.expect("end", reason="walltime")
    assert beta.ask()["work"] == "initialise"
    digest = world.put_weights(weights(1))
    assert beta.expect("initial", weights=digest)["accepted"] is True
    before = world.dump()
    for later in (digest, world.put_weights(weights(2)), "e" * 64):
        assert beta.expect("initial", weights=later)["reason"] == "there is a generation 0 already"
    assert world.dump() == before
    assert world.chain()[0].master == digest
    assert beta.ask()["work"] == "adopt"


@pytest.mark.parametrize("bad", ["nan", "bf16", "garbage", "missing"])
def test_generation_0_must_be_finite_float32(world: World, bad: str) -> None:
    alpha = world.site("alpha")
    tensors = weights(1)
    if bad == "nan":
        tensors["embed"][0, 0] = np.nan
    if bad in ("nan", "bf16"):
        digest = world.put_weights(tensors, "F32" if bad == "nan" else "BF16")
    else:
        digest = Digest("a" * 64) if bad == "missing" else world.put(b"garbage")
    response = alpha.post(f"sessions/{alpha.session}/initial", weights=digest)
    assert (response.status_code, response.json()["kind"]) == (
        409,
        "missing-blob" if bad == "missing" else "wrong-file",
    )
    assert world.chain() == ()


def test_merge_equals_a_straightforward_computation(world: World) -> None:
    alpha, beta = world.begin("alpha", "beta")
    values = {name: tensor.astype(np.float32) for name, tensor in weights(1).items()}
    velocity = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    tokens = [48, 16]
    for number, (first, second) in enumerate([(0.5, 0.25), (0.3, 0.6)]):
        alpha.work()
        beta.work()
        alpha.contribute(first, tokens=tokens[0])
        beta.contribute(second, tokens=tokens[1], blocks=2)
        world.step(1000)
        factor, share = np.float32(tokens[1] / tokens[0]), np.float32(tokens[0] / sum(tokens))
        for name in SHAPES:
            mean = share * (rounded(weights(first)[name]) + factor * rounded(weights(second)[name]))
            velocity[name] = BETA * velocity[name] + ETA * mean
            values[name] = values[name] + (BETA * velocity[name] + ETA * mean)
        newest = world.chain()[-1]
        assert newest.number == number + 1
        master, momentum = tensors_of(world, newest.master), tensors_of(world, newest.momentum)
        wire = tensors_of(world, newest.weights)
        for name in SHAPES:
            np.testing.assert_array_equal(master[name], values[name])
            np.testing.assert_array_equal(momentum[name], velocity[name])
            np.testing.assert_array_equal(wire[name], values[name].astype(ml_dtypes.bfloat16))
        alpha.holds = beta.holds = newest.number
    assert [record.tokens for record in world.chain()] == [0, 64, 128]
    assert [record.global_step for record in world.chain()] == [0, 4, 8]
    assert world.audit().problems == ()


def test_merge_does_not_depend_on_who_contributed_first(fast_tmp: Path) -> None:
    digests = []
    for order in (0, 1):
        directory = fast_tmp / str(order)
        directory.mkdir()
        world = build_world(directory)
        alpha, beta = world.begin("alpha", "beta")
        alpha.work()
        beta.work()
        for driver, value in [(alpha, 0.5), (beta, 0.25)][:: 1 if order == 0 else -1]:
            driver.contribute(value)
        world.step(1000)
        digests.append((world.chain()[-1].master, world.chain()[-1].momentum, world.chain()[-1].weights))
    assert digests[0] == digests[1]


def test_round_of_one_site_takes_the_solo_values(fast_tmp: Path) -> None:
    world = build_world(fast_tmp, run_config(outer={"solo_eta": 0.4, "solo_beta": 0.0}))
    (alpha,) = world.begin("alpha")
    alpha.work()
    alpha.contribute(0.5)
    world.step(1000)
    newest = world.chain()[-1]
    assert (newest.eta, newest.beta, newest.contributions) == (0.4, 0.0, 1)
    expected = weights(1)["embed"] + np.float32(0.4) * rounded(weights(0.5)["embed"])
    np.testing.assert_array_equal(tensors_of(world, newest.master)["embed"], expected)
    assert world.audit().problems == ()


def test_wire_of_float32_shares_one_file_with_the_master(fast_tmp: Path) -> None:
    world = build_world(fast_tmp, run_config(wire={"weights": "fp32"}))
    (alpha,) = world.begin("alpha")
    alpha.work()
    alpha.contribute()
    world.step(1000)
    assert all(record.weights == record.master for record in world.chain())
    assert world.audit().problems == ()


def test_round_waits_for_a_site_on_its_way_and_closes_after_patience(world: World) -> None:
    alpha, beta = world.begin("alpha", "beta")
    beta.beat("adopting")
    alpha.work()
    world.pass_time(2000, alpha)
    alpha.contribute()
    for second in range(2, 29):
        world.clock.advance(1000)
        beta.beat("adopting")
        world.step()
        assert len(world.chain()) == 1, second
    assert world.status()["waiting"].startswith("waiting for beta to ask for work")
    assert world.status()["until"] == world.clock.now() + 1000
    beta.beat("adopting")
    world.step(1000)
    assert world.chain()[-1].contributions == 1
    assert beta.ask()["work"] == "adopt"


def test_round_includes_the_site_on_its_way_when_it_asks_in_time(world: World) -> None:
    alpha, beta = world.begin("alpha", "beta")
    beta.beat("adopting")
    alpha.work()
    alpha.contribute()
    world.step(5000)
    beta.work()
    world.pass_time(60_000, beta)
    reply = alpha.ask()
    assert (reply["work"], reply["reason"]) == (
        "wait",
        "contributed; waiting for beta to contribute; at the cutoff the round closes without",
    )
    beta.contribute()
    world.step(1000)
    assert world.chain()[-1].contributions == 2


def test_round_does_not_wait_for_a_site_that_fell_silent(world: World) -> None:
    alpha, beta = world.begin("alpha", "beta")
    beta.work()
    alpha.work()
    alpha.contribute()
    world.pass_time(9000)
    assert len(world.chain()) == 1
    world.pass_time(2000)
    assert world.chain()[-1].contributions == 1
    assert world.audit().problems == ()


def test_cutoff_closes_the_round_and_returns_the_blocks_of_who_is_late(world: World) -> None:
    alpha, beta = world.begin("alpha", "beta")
    alpha.work()
    beta.work()
    alpha.contribute()
    world.pass_time(196_000, beta, every=4000)
    assert len(world.chain()) == 1
    assert beta.beat()["drain"] is True
    world.pass_time(4000, beta, every=4000)
    assert world.chain()[-1].contributions == 1
    counts = world.counts()
    assert (counts[BlockState.MERGED], counts[BlockState.AVAILABLE]) == (4, world.blocks - 4)
    assert "cutoff of 200 s passed; not waiting for beta" in str(world.dump()["rounds"])
    assert world.audit().problems == ()


def test_cutoff_counts_from_the_first_lease_not_from_the_queue(world: World) -> None:
    (alpha,) = world.begin("alpha")
    world.pass_time(20_000_000, every=100_000)
    alpha = world.site("alpha")
    alpha.work()
    assert alpha.beat()["drain"] is False
    world.pass_time(148_000, alpha, every=4000)
    assert alpha.beat()["drain"] is False


def test_short_last_block_and_the_next_epoch_in_a_new_order(fast_tmp: Path) -> None:
    world = build_world(fast_tmp, run_config(run={"epochs": 2, "rounds": 100}), windows=13)
    (alpha,) = world.begin("alpha")
    assert world.blocks == 7
    trained: list[list[int]] = []
    while world.status()["finished"] is False:
        lease = alpha.work()
        trained.append(alpha.windows())
        assert len(lease["spans"]) == 1
        alpha.contribute()
        world.step(1000)
    epochs = [sorted(trained[0] + trained[1]), sorted(trained[2] + trained[3])]
    assert epochs == [list(range(13))] * 2
    assert trained[:2] != trained[2:]
    status = world.status()
    assert status["finished_reason"] == "the corpus was merged 2 times"
    assert status["blocks"] == {"total": 14, "available": 0, "leased": 0, "contributed": 0, "merged": 14}
    assert status["tokens"] == 2 * 13 * 8
    assert alpha.ask()["work"] == "finished"
    assert world.audit().problems == ()
    world.step(10**9)
    assert status["generations"] == world.status()["generations"]


def test_run_is_finished_after_its_rounds(fast_tmp: Path) -> None:
    world = build_world(fast_tmp, run_config(run={"rounds": 2}))
    (alpha,) = world.begin("alpha")
    for _ in range(2):
        alpha.work()
        alpha.contribute()
        world.step(1000)
    assert alpha.ask() == alpha.ask()
    reply = alpha.ask()
    assert (reply["work"], reply["reason"]) == ("finished", "all 2 rounds are done")
    world.step(1000)
    assert world.status()["waiting"] == "all 2 rounds are done"
    assert world.audit().problems == ()


def test_generation_is_measured_once_by_one_site(fast_tmp: Path) -> None:
    world = build_world(fast_tmp, run_config(heldout={"windows": 4}))
    alpha, beta = world.begin("alpha", "beta")
    assert (alpha.ask()["work"], beta.ask()["work"]) == ("evaluate", "train")
    first = alpha.expect("evaluation", generation=0, nll=20.0, tokens=8)
    assert first["reason"] == "held-out loss 2.5000 over 8 tokens"
    assert alpha.expect("evaluation", generation=0, nll=9.0, tokens=8)["reason"] == "generation 0 was measured before"
    (record,) = world.status()["generations"]
    assert (record["loss"], record["perplexity"]) == (2.5, pytest.approx(np.exp(2.5)))
    unknown = alpha.post(f"sessions/{alpha.session}/evaluation", generation=1, nll=1.0, tokens=1)
    assert (unknown.status_code, unknown.json()["kind"]) == (404, "unknown-generation")


def test_measure_of_a_hopeless_model_does_not_break_the_status(fast_tmp: Path) -> None:
    world = build_world(fast_tmp, run_config(heldout={"windows": 4}))
    (alpha,) = world.begin("alpha")
    alpha.expect("evaluation", generation=0, nll=1e300, tokens=1)
    (record,) = world.status()["generations"]
    assert (record["loss"], record["perplexity"]) == (1e300, None)


def test_measure_is_left_to_another_site_when_its_site_vanished(fast_tmp: Path) -> None:
    world = build_world(fast_tmp, run_config(heldout={"windows": 4}))
    alpha, beta = world.begin("alpha", "beta")
    assert alpha.ask()["work"] == "evaluate"
    alpha.expect("end", reason="walltime")
    assert beta.ask()["work"] == "evaluate"


def test_starving_site_gets_the_tail_that_the_holder_sheds(fast_tmp: Path) -> None:
    world = build_world(fast_tmp, windows=8)
    (alpha,) = world.begin("alpha")
    assert alpha.work()["spans"] == [[0, 0, 4]]
    assert alpha.beat(blocks=1)["shed"] is False
    beta = world.site("beta")
    beta.holds = 0
    reply = beta.ask()
    assert (reply["work"], alpha.lease is not None) == ("wait", True)
    assert reply["reason"].startswith("every block of the epoch is leased or contributed")
    assert world.counts()[BlockState.LEASED] == 4
    assert alpha.beat(blocks=1)["shed"] is True
    assert alpha.beat(blocks=1, kept=3)["shed"] is False
    assert alpha.beat(blocks=1, kept=3)["lease_alive"] is True
    assert world.counts()[BlockState.AVAILABLE] == 1
    assert beta.work()["spans"] == [[0, 3, 4]]
    assert alpha.try_contribute().json()["kind"] == "wrong-blocks"
    alpha.contribute(blocks=3)
    beta.contribute()
    world.step(1000)
    assert world.chain()[-1].contributions == 2
    rows = {row["name"]: row for row in world.status()["sites"]}
    assert (rows["alpha"]["shed_blocks"], rows["alpha"]["merged_blocks"], rows["beta"]["merged_blocks"]) == (1, 3, 1)
    assert world.audit().problems == ()


@pytest.mark.parametrize("kept", [0, 4, 9])
def test_answer_that_sheds_nothing_changes_nothing(fast_tmp: Path, kept: int) -> None:
    world = build_world(fast_tmp, windows=8)
    (alpha,) = world.begin("alpha")
    alpha.work()
    before = world.dump()
    alpha.beat(kept=kept)
    assert world.dump() == before


def test_saved_phase_goes_on_under_a_new_lease_of_the_same_blocks(world: World) -> None:
    (alpha,) = world.begin("alpha")
    saved = alpha.work()
    world.pass_time(10_000)
    again = world.site("alpha")
    reply = again.ask(resume=saved)
    assert reply["work"] == "resume"
    assert (reply["lease"]["spans"], reply["lease"]["token"]) == (saved["spans"], saved["token"] + 1)
    # The reply may be lost on its way: asking again gives the same lease, for the same saved phase.
    assert again.ask(resume=saved)["lease"] == reply["lease"]
    assert again.ask(resume=saved)["work"] == "resume"
    again.contribute()
    world.step(1000)
    assert world.chain()[-1].contributions == 1
    assert world.audit().problems == ()


def test_saved_phase_takes_the_place_of_another_lease(world: World) -> None:
    alpha, beta = world.begin("alpha", "beta")
    beta.work(max_blocks=2)
    saved = alpha.work(max_blocks=2)
    alpha.release()
    beta.release()
    alpha.work(max_blocks=1)
    alpha.holds = None
    reply = alpha.ask(resume=saved)
    assert (reply["work"], reply["lease"]["spans"]) == ("resume", [[0, 2, 4]])
    assert world.counts()[BlockState.LEASED] == 2
    assert world.audit().problems == ()


@pytest.mark.parametrize("change", [{"token": 9}, {"token": 2}])
def test_saved_phase_of_another_sites_lease_is_not_resumed(world: World, change: dict[str, int]) -> None:
    alpha, beta = world.begin("alpha", "beta")
    saved = alpha.work(max_blocks=2)
    beta.work(max_blocks=1)
    alpha.release()
    beta.release()
    assert world.site("alpha").ask(resume={**saved, **change})["work"] == "adopt"
    assert world.site("alpha").ask(resume=saved)["work"] == "resume"


def test_saved_phase_whose_blocks_are_gone_is_not_resumed(world: World) -> None:
    (alpha,) = world.begin("alpha")
    saved = alpha.work(max_blocks=2)
    world.pass_time(10_000)
    beta = world.site("beta")
    beta.holds = 0
    beta.work(max_blocks=1)
    assert world.site("alpha").ask(resume=saved)["work"] == "adopt"
    beta.contribute()
    world.step(1000)
    assert world.site("alpha").ask(resume=saved)["work"] == "adopt"


@pytest.mark.parametrize("spans", [[], [[0, 0, 4], [0, 0, 4]], [[0, 3, 3]], [[0, 5, 2]], [[0, 4, 6], [0, 0, 2]]])
def test_resume_of_spans_that_are_no_lease_grants_nothing(world: World, spans: list[list[int]]) -> None:
    (alpha,) = world.begin("alpha")
    alpha.holds = None
    before = world.dump()
    saved = {"token": 1, "generation": 0, "global_step": 0, "spans": spans, "ttl_ms": 1}
    response = alpha.post(f"sessions/{alpha.session}/next", holds=None, resume=saved)
    assert response.status_code == 422 or response.json()["work"] == "adopt"
    assert world.dump() == before
