"""A contribution is judged before it counts; each refusal has a kind and a sentence."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from crosstrain.domain.contribution import (
    MIN_NORM_HISTORY,
    Contribution,
    Judgement,
    judge_claim,
    judge_delta,
    may_go_on,
)
from crosstrain.domain.ids import Digest, Generation, Instant, SessionId, SiteName, Token
from crosstrain.domain.lease import Lease, LeaseState

LEASE = Lease(Token(7), SiteName("a"), SessionId(2), Generation(3), 30, 5, Instant(0), 1000)
CLAIM = Contribution(Token(7), Generation(3), 5, 20, 160, 10, Digest("d" * 64), "20:0", 2.5)
SEQ_LEN = 8


def judge(claim: Contribution = CLAIM, lease: Lease = LEASE, current: int = 3) -> Judgement:
    return judge_claim(claim, lease, Generation(current), SEQ_LEN, {20, 18})


def test_claim_that_fits_its_lease_is_accepted() -> None:
    verdict = judge()
    assert (verdict.accepted, verdict.kind, verdict.malformed) == (True, "accepted", False)


@pytest.mark.parametrize(
    "claim",
    [
        replace(CLAIM, blocks=1),
        replace(CLAIM, tokens=1),
        replace(CLAIM, steps=1),
        replace(CLAIM, steps=20),
        replace(CLAIM, windows=18, tokens=144, windows_digest="18:0"),
        replace(CLAIM, loss=None),
    ],
)
def test_claim_at_the_edge_of_its_lease_is_accepted(claim: Contribution) -> None:
    assert judge(claim).accepted


@pytest.mark.parametrize("state", [state for state in LeaseState if state is not LeaseState.LIVE])
def test_claim_of_a_lease_that_is_over_is_refused(state: LeaseState) -> None:
    verdict = judge(lease=replace(LEASE, state=state))
    assert (verdict.accepted, verdict.kind, verdict.malformed) == (False, "lease-over", False)
    assert f"lease 7 is {state}" in verdict.reason


@pytest.mark.parametrize(
    ("claim", "kind", "sentence"),
    [
        (replace(CLAIM, generation=Generation(2)), "wrong-base", "starts from generation 3, found 2"),
        (replace(CLAIM, blocks=0), "wrong-blocks", "expected 1 to 5 blocks, found 0"),
        (replace(CLAIM, blocks=6), "wrong-blocks", "found 6"),
        (replace(CLAIM, windows=19), "wrong-windows", "18 or 20 windows, found 19"),
        (replace(CLAIM, windows_digest="19:0"), "wrong-windows", "digest"),
        (replace(CLAIM, tokens=0), "wrong-tokens", "expected 1 to 160 tokens, found 0"),
        (replace(CLAIM, tokens=161), "wrong-tokens", "found 161"),
        (replace(CLAIM, steps=0), "wrong-steps", "expected 1 to 20 steps, found 0"),
        (replace(CLAIM, steps=21), "wrong-steps", "found 21"),
    ],
)
def test_claim_that_contradicts_its_lease_is_malformed(claim: Contribution, kind: str, sentence: str) -> None:
    verdict = judge(claim)
    assert (verdict.accepted, verdict.kind, verdict.malformed) == (False, kind, True)
    assert sentence in verdict.reason


def test_claim_against_an_older_generation_is_stale() -> None:
    verdict = judge(current=4)
    assert (verdict.kind, verdict.malformed) == ("stale-base", False)
    assert "generation 4 is current, the delta is against 3" in verdict.reason


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_claim_with_a_loss_that_is_not_finite_is_refused(loss: float) -> None:
    assert judge(replace(CLAIM, loss=loss)).kind == "not-finite"


@pytest.mark.parametrize(("norm", "finite"), [(1.0, False), (math.nan, True), (math.inf, True)])
def test_delta_that_is_not_finite_is_refused(norm: float, finite: bool) -> None:
    assert judge_delta(norm, finite, [1.0] * 9, 10).kind == "not-finite"


def test_delta_norm_above_the_limit_is_refused_once_there_is_evidence() -> None:
    history = [1.0, 2.0, 3.0, 4.0, 100.0]
    assert judge_delta(30.0, True, history, 10).accepted
    refused = judge_delta(30.1, True, history, 10)
    assert (refused.accepted, refused.kind) == (False, "norm")
    assert "10 x the running median 3" in refused.reason
    assert judge_delta(1e9, True, history[: MIN_NORM_HISTORY - 1], 10).accepted


def test_delta_any_norm_is_let_in_after_zero_norms() -> None:
    assert judge_delta(5.0, True, [0.0] * 9, 10).accepted


def test_only_what_was_trained_is_a_refusal_of_content() -> None:
    assert judge_delta(1.0, False, [], 10).of_content
    assert judge_delta(99.0, True, [1.0] * 9, 10).of_content
    assert judge(replace(CLAIM, loss=math.nan)).of_content
    assert not judge(current=4).of_content
    assert not judge().of_content


@pytest.mark.parametrize(("refused", "goes_on"), [(0, True), (2, True), (3, False), (4, False)])
def test_a_session_goes_on_until_its_third_refusal_in_a_row(refused: int, goes_on: bool) -> None:
    verdict = may_go_on(refused)
    assert bool(verdict) == goes_on
    assert str(refused) in verdict.reason
