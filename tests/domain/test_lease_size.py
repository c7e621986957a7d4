from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstrain.domain.ids import Generation, Instant, SessionId, SiteName, Token
from crosstrain.domain.lease import (
    FULL_PHASE_SLACK,
    MIN_TAIL,
    PACE_MS,
    Demand,
    Lease,
    Pace,
    Tail,
    expected_close,
    full_phase_blocks,
    size_grant,
    whom_to_ask,
)

rates = st.one_of(st.none(), st.floats(0.001, 1000))
demands = st.builds(Demand, st.sampled_from([SiteName("b"), SiteName("c")]), st.integers(1, 500), rates)


def demand(name: str = "a", full: int = 20, rate: float | None = None) -> Demand:
    return Demand(SiteName(name), full, rate)


def lease(blocks: int, granted_at: int = 0) -> Lease:
    site = SiteName("a")
    return Lease(Token(1), site, SessionId(1), Generation(0), 0, blocks, Instant(granted_at), 1000)


@given(
    st.builds(Demand, st.just(SiteName("a")), st.integers(1, 500), rates),
    st.lists(demands, max_size=4),
    st.integers(1, 2000),
    st.one_of(st.none(), st.floats(0, 1e5)),
    st.one_of(st.none(), st.integers(1, 600)),
)
def test_grant_size_is_at_least_one_and_never_more_than_full_available_or_trainable(
    mine: Demand, others: list[Demand], available: int, left: float | None, most: int | None
) -> None:
    size = size_grant(mine, others, available, left, most)
    assert 1 <= size.blocks <= min(mine.full_blocks, available, most or available)
    assert size.reason


@pytest.mark.parametrize(
    ("steps", "per_step", "block", "blocks"), [(100, 8, 64, 13), (1, 1, 64, 1), (10, 4, 4, 10), (3, 3, 2, 5)]
)
def test_full_phase_blocks_round_up(steps: int, per_step: int, block: int, blocks: int) -> None:
    assert full_phase_blocks(steps, per_step, block) == blocks


def test_grant_unmeasured_site_gets_a_full_phase() -> None:
    size = size_grant(demand(), [], 1000, 3.0, None)
    assert (size.blocks, size.reason) == (20, "a full inner phase is 20 blocks")


def test_grant_slow_site_is_sized_to_end_with_the_round() -> None:
    size = size_grant(demand(rate=0.5), [], 1000, 16.0, None)
    assert size.blocks == 8
    assert "expected in 16 s" in size.reason


def test_grant_site_within_the_slack_gets_a_full_phase() -> None:
    assert size_grant(demand(rate=1.0), [], 1000, 20 / FULL_PHASE_SLACK, None).blocks == 20
    assert size_grant(demand(rate=1.0), [], 1000, 20 / FULL_PHASE_SLACK - 0.1, None).blocks == 15


def test_grant_round_about_to_close_still_gives_one_block() -> None:
    assert size_grant(demand(rate=1.0), [], 1000, 0.0, None).blocks == 1


def test_grant_job_that_ends_soon_gets_what_it_can_train() -> None:
    size = size_grant(demand(), [], 1000, None, 7)
    assert (size.blocks, size.reason) == (7, "its job ends after about 7 blocks")


def test_grant_tail_of_the_epoch_is_shared_by_measured_rate() -> None:
    fast, slow = demand("a", 20, 3.0), demand("b", 20, 1.0)
    assert size_grant(fast, [slow], 12, None, None).blocks == 9
    assert size_grant(slow, [fast], 12, None, None).blocks == 3
    assert "last 12 blocks" in size_grant(fast, [slow], 12, None, None).reason


@pytest.mark.parametrize("first", [1.0, 1.2, 2.9])
def test_grant_of_the_last_two_blocks_leaves_one_for_a_site_that_is_not_much_slower(first: float) -> None:
    assert size_grant(demand("a", 20, first), [demand("b", 20, 1.0)], 2, None, None).blocks == 1
    assert size_grant(demand("b", 20, 1.0), [], 1, None, None).blocks == 1


def test_grant_tail_is_shared_equally_while_a_rate_is_unknown() -> None:
    assert size_grant(demand("a", 20, 3.0), [demand("b", 20)], 12, None, None).blocks == 6


@given(st.lists(st.builds(Demand, st.just(SiteName("a")), st.integers(1, 50), rates), min_size=1, max_size=5))
def test_grant_tail_is_never_handed_out_twice(sites: list[Demand]) -> None:
    available = len(sites)
    for index, mine in enumerate(sites):
        others = sites[index + 1 :]
        blocks = size_grant(mine, others, available, None, None).blocks
        available -= blocks
        assert available >= 0
        if available == 0:
            break


def test_demand_seconds_need_a_rate() -> None:
    assert demand(rate=2.0).seconds == 10
    assert demand().seconds is None


def test_expected_close_unknown_without_any_rate() -> None:
    assert expected_close(Instant(0), [(lease(5), None)], [demand()]) is None


def test_expected_close_is_set_by_the_fastest_full_phase() -> None:
    close = expected_close(Instant(1000), [], [demand("a", 20, 1.0), demand("b", 20, 4.0)])
    assert close == 1000 + 5000


def test_expected_close_never_outruns_a_lease_that_is_out() -> None:
    close = expected_close(Instant(0), [(lease(30, granted_at=2000), 1.0)], [demand("b", 20, 4.0)])
    assert close == 32_000


def test_tail_largest_untouched_one_is_asked_for() -> None:
    tails = [Tail(Token(1), 3), Tail(Token(2), 8), Tail(Token(3), 8)]
    assert whom_to_ask(tails, ()) == 2
    assert whom_to_ask(tails, {Token(9)}) == 2


def test_tail_is_not_asked_for_while_a_request_is_out() -> None:
    assert whom_to_ask([Tail(Token(1), 3), Tail(Token(2), 8)], {Token(1)}) is None


def test_tail_too_short_to_divide_is_left_alone() -> None:
    assert whom_to_ask([Tail(Token(1), MIN_TAIL - 1)], ()) is None
    assert whom_to_ask([Tail(Token(1), MIN_TAIL)], ()) == 1
    assert whom_to_ask([], ()) is None


PACE = Pace(Generation(3), Instant(5_000), Instant(60_000), largest=8)


def test_a_look_at_the_pace_holds_for_a_moment_and_its_own_round() -> None:
    assert PACE.holds(Generation(3), Instant(5_000))
    assert PACE.holds(Generation(3), Instant(5_000 + PACE_MS - 1))
    assert not PACE.holds(Generation(3), Instant(5_000 + PACE_MS))
    assert not PACE.holds(Generation(3), Instant(4_999)), "the clock was set back"
    assert not PACE.holds(Generation(4), Instant(5_000))


@pytest.mark.parametrize(("close", "expected"), [(None, 70_000), (60_000, 70_000), (80_000, 80_000)])
def test_a_lease_granted_since_the_look_is_not_outrun(close: int | None, expected: int) -> None:
    before = replace(PACE, close=None if close is None else Instant(close))
    assert before.including(Instant(70_000)).close == expected
