"""The elastic barrier: 0, 1 or N sites are all normal, and every wait says what for and until when (G5, G6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crosstrain.domain.ids import Generation, Instant, SiteName, Token
from crosstrain.domain.outer_round import BarrierRules, RoundView, may_close, may_start, must_drain
from crosstrain.domain.site import Attendance, Phase

RULES = BarrierRules(cutoff_ms=100_000, drain_ms=20_000, join_patience_ms=10_000, start_sites=2, start_after_ms=30_000)
BEGUN = 1_000_000
A, B = SiteName("a"), SiteName("b")


def attendant(site: SiteName, phase: Phase = Phase.ADOPTING) -> Attendance:
    return Attendance(site, phase, token=None, contributed=False, asked=False)


def view(
    contributions: tuple[SiteName, ...] = (),
    holders: tuple[SiteName, ...] = (),
    attendance: tuple[Attendance, ...] = (),
    settled_at: int = 0,
) -> RoundView:
    return RoundView(Generation(3), Instant(BEGUN), contributions, holders, attendance, Instant(settled_at))


@pytest.mark.parametrize("later", [0, 50_000, 100_000, 10**9])
def test_round_without_contributions_never_closes(later: int) -> None:
    empty = may_close(view(), RULES, Instant(BEGUN + later))
    assert (empty.yes, empty.reason, empty.until) == (False, "waiting for a site to take a lease", None)
    held = may_close(view(holders=(B, A)), RULES, Instant(BEGUN + later))
    assert (held.yes, held.reason) == (False, "waiting for the first contribution, from a, b")


def test_round_waits_for_holders_until_the_cutoff() -> None:
    open_round = view((A,), (B,))
    before = may_close(open_round, RULES, Instant(BEGUN + 99_999))
    assert (before.yes, before.until) == (False, BEGUN + 100_000)
    assert "waiting for b to contribute" in before.reason
    after = may_close(open_round, RULES, Instant(BEGUN + 100_000))
    assert (after.yes, after.reason) == (True, "the round's cutoff of 100 s passed; not waiting for b")


def test_round_closes_at_the_cutoff_also_when_nobody_holds() -> None:
    verdict = may_close(view((A,), (), (attendant(B),), settled_at=BEGUN + 99_000), RULES, Instant(BEGUN + 100_000))
    assert (verdict.yes, verdict.reason) == (True, "the round's cutoff of 100 s passed")


def test_round_waits_for_a_site_on_its_way_until_patience_ends() -> None:
    coming = view((A,), (), (attendant(B),))
    before = may_close(coming, RULES, Instant(BEGUN + 9_999))
    assert (before.yes, before.until) == (False, BEGUN + 10_000)
    assert "waiting for b to ask for work" in before.reason
    assert may_close(coming, RULES, Instant(BEGUN + 10_000)).yes


def test_round_patience_counts_anew_from_a_restart_of_the_coordinator() -> None:
    coming = view((A,), (), (attendant(B),), settled_at=BEGUN + 30_000)
    assert may_close(coming, RULES, Instant(BEGUN + 39_999)).until == BEGUN + 40_000
    assert may_close(coming, RULES, Instant(BEGUN + 40_000)).yes


def test_round_with_all_leases_in_closes_at_once() -> None:
    assert may_close(view((A,)), RULES, Instant(BEGUN)).reason == "its only lease is in"
    assert may_close(view((A, B)), RULES, Instant(BEGUN)).reason == "all 2 leases are in"


@pytest.mark.parametrize(
    ("attendance", "waited_for"),
    [
        (attendant(B), True),
        (attendant(B, Phase.WAITING), True),
        (attendant(B, Phase.BOOTING), False),
        (attendant(B, Phase.INITIALISING), False),
        (attendant(B, Phase.DRAINING), False),
        (replace(attendant(B), token=Token(4)), False),
        (replace(attendant(B), contributed=True), False),
        (replace(attendant(B), asked=True), False),
    ],
)
def test_round_waits_only_for_sites_that_may_still_take_a_lease(attendance: Attendance, waited_for: bool) -> None:
    assert may_close(view((A,), (), (attendance,)), RULES, Instant(BEGUN)).yes is not waited_for


def test_start_waits_for_enough_sites_or_for_the_time() -> None:
    came = Instant(BEGUN)
    alone = may_start(1, came, RULES, Instant(BEGUN + 29_999))
    assert (alone.yes, alone.until) == (False, BEGUN + 30_000)
    assert "waiting for 2 sites, 1 came" in alone.reason
    assert may_start(1, came, RULES, Instant(BEGUN + 30_000)).yes
    assert may_start(2, came, RULES, Instant(BEGUN)).yes


def test_drain_begins_before_the_cutoff() -> None:
    early = must_drain(Instant(BEGUN), RULES, Instant(BEGUN + 79_999))
    assert (early.yes, early.until) == (False, BEGUN + 80_000)
    late = must_drain(Instant(BEGUN), RULES, Instant(BEGUN + 80_000))
    assert (late.yes, late.until) == (True, BEGUN + 100_000)
