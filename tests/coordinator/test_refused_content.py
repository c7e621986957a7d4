"""Sessions whose contributions are refused for what they hold: told to stop after the third in a row, and not before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.fakes import SHAPES, SiteDriver, World, build_world, run_config

BAD = {name: np.full(shape, np.nan, np.float32) for name, shape in SHAPES.items()}


@pytest.fixture
def world(fast_tmp: Path) -> World:
    return build_world(fast_tmp, run_config(round={"cutoff_s": 10_000}))


def refused(site: SiteDriver) -> None:
    """A phase whose delta holds NaN."""
    site.work()
    assert site.lease is not None
    claim = site.claim(site.world.put_delta(BAD))
    answer = site.post(f"leases/{site.lease['token']}/contribution", **claim).json()
    assert (answer["accepted"], answer["kind"]) == (False, "not-finite")
    assert site.post(f"leases/{site.lease['token']}/contribution", **claim).json() == answer  # counted once


def test_third_refusal_in_a_row_is_the_session_s_last(world: World) -> None:
    (alpha,) = world.begin("alpha")
    for _ in range(3):
        refused(alpha)
    answer = alpha.post(f"sessions/{alpha.session}/next", holds=0)
    assert (answer.status_code, answer.json()["kind"]) == (409, "refused-too-often")
    assert "3 contributions of it in a row were refused for what they held" in answer.json()["detail"]
    assert world.audit().problems == ()


def test_the_round_goes_on_with_the_others(world: World) -> None:
    alpha, beta = world.begin("alpha", "beta")
    for _ in range(3):
        refused(alpha)
    alpha.expect("end", reason="it failed")
    beta.work()
    beta.contribute()
    world.step(60_000)
    assert world.chain()[-1].contributions == 1
    assert world.audit().problems == ()


def test_an_accepted_contribution_between_them_begins_the_count_anew(world: World) -> None:
    (alpha,) = world.begin("alpha")
    for _ in range(2):
        for _ in range(2):
            refused(alpha)
        alpha.work()
        alpha.contribute()
        world.step(60_000)
    alpha.work()


def test_a_refusal_that_is_not_the_site_s_fault_does_not_count(world: World) -> None:
    (alpha,) = world.begin("alpha")
    for _ in range(2):
        refused(alpha)
    lease = alpha.work()
    claim = alpha.claim(world.put_delta(BAD))
    alpha.release()
    answer = alpha.post(f"leases/{lease['token']}/contribution", **claim).json()
    assert (answer["accepted"], answer["kind"]) == (False, "lease-over")
    alpha.work()


def test_another_session_of_the_site_begins_the_count_anew(world: World) -> None:
    (alpha,) = world.begin("alpha")
    for _ in range(3):
        refused(alpha)
    again = world.site("alpha")
    again.work()


def test_the_count_outlives_the_coordinator(world: World) -> None:
    (alpha,) = world.begin("alpha")
    for _ in range(2):
        refused(alpha)
    world.restart()
    refused(alpha)
    assert alpha.post(f"sessions/{alpha.session}/next", holds=0).json()["kind"] == "refused-too-often"
