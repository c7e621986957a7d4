"""Leases: how much a site gets, and what became of it."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from crosstrain.domain.ids import Generation, Instant, SessionId, SiteName, Token
from crosstrain.domain.plural import counted


class LeaseState(StrEnum):
    """What became of a lease. Only LIVE lets its holder write."""

    LIVE = "live"
    CONTRIBUTED = "contributed"
    MERGED = "merged"
    DROPPED = "dropped"
    EXPIRED = "expired"
    RELEASED = "released"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one site session to train a span of blocks.

    Attributes:
        token: fencing token, presented with every write.
        generation: the global model the phase starts from, or, granted ahead of it, will be moved to.
        global_step: inner steps behind that model; granted ahead, behind the weights that the site goes on from.
        blocks: how many blocks were granted.
        ttl_ms: how long it lives after a heartbeat.
    """

    token: Token
    site: SiteName
    session: SessionId
    generation: Generation
    global_step: int
    blocks: int
    granted_at: Instant
    ttl_ms: int
    state: LeaseState = LeaseState.LIVE


@dataclass(frozen=True, slots=True)
class Tail:
    """The blocks of a live lease that its holder did not report as trained yet."""

    token: Token
    untouched: int


MIN_TAIL = 2
"""Untouched blocks of which a holder, keeping the nearer half, still gives one up."""


def whom_to_ask(tails: Sequence[Tail], asked: Collection[Token]) -> Token | None:
    """The lease whose holder is asked to shed: the largest untouched tail, unless a request is out already."""
    if any(tail.token in asked for tail in tails):
        return None
    largest = max(tails, key=lambda tail: (tail.untouched, -tail.token), default=None)
    return largest.token if largest is not None and largest.untouched >= MIN_TAIL else None


@dataclass(frozen=True, slots=True)
class Demand:
    """What one site could take in this round.

    Attributes:
        full_blocks: ceil(H x B x W x A / K), a full inner phase.
        rate: blocks per second measured over its past phases, None before the first.
    """

    site: SiteName
    full_blocks: int
    rate: float | None

    @property
    def seconds(self) -> float | None:
        """How long a full phase takes this site."""
        return self.full_blocks / self.rate if self.rate else None


def full_phase_blocks(steps: int, windows_per_step: int, block_windows: int) -> int:
    """Blocks of a full inner phase, max(1, ceil(H B W A / K)) (arXiv 2610.03457)."""
    return max(1, math.ceil(steps * windows_per_step / block_windows))


@dataclass(frozen=True, slots=True)
class Pace:
    """A round as it was a moment ago. Found by a look at every site and lease, which not every grant can afford.

    Attributes:
        at: when the look was taken.
        close: when the round can be expected to close, None if nothing is known of it.
        largest: blocks of the largest full phase of any site.
    """

    generation: Generation
    at: Instant
    close: Instant | None
    largest: int

    def holds(self, generation: Generation, now: Instant) -> bool:
        return self.generation == generation and self.at <= now < self.at + PACE_MS

    def including(self, end: Instant) -> Pace:
        """With one more lease, which can be expected to end then."""
        return replace(self, close=end if self.close is None else max(end, self.close))


PACE_MS = 1000
"""How long a look holds. Rates are averages over minutes; only the few blocks of the epoch's end are shared to the block, and
those by a look of their own."""


@dataclass(frozen=True, slots=True)
class GrantSize:
    blocks: int
    reason: str


FULL_PHASE_SLACK = 1.25
"""A site that would end within a quarter more than the time left to the round's close still gets a full phase: cutting
it would cost more gradient than the others' short wait, and measured rates are no better than that."""


def size_grant(
    mine: Demand,
    others: Sequence[Demand],
    available: int,
    seconds_left: float | None,
    max_blocks: int | None,
) -> GrantSize:
    """How many blocks a site gets.

    Args:
        mine: the asking site.
        others: live sites that hold no lease in this round but could still ask.
        available: blocks available in the epoch.
        seconds_left: time to the round's expected close, None if nothing is known of it.
        max_blocks: what the site can train before its job ends, None if it did not say.

    Returns:
        At least one block, never more than a full phase nor than what is available.
    """
    blocks, reason = mine.full_blocks, f"a full inner phase is {counted(mine.full_blocks, 'block')}"
    too_long = mine.seconds is not None and seconds_left is not None and mine.seconds > FULL_PHASE_SLACK * seconds_left
    if too_long and mine.rate and seconds_left is not None:
        blocks = max(1, math.floor(mine.rate * max(0.0, seconds_left)))
        reason = f"{blocks} blocks at {mine.rate:.3g} blocks/s end with the round, expected in {seconds_left:.0f} s"
    if max_blocks is not None and max_blocks < blocks:
        blocks, reason = max(1, max_blocks), f"its job ends after about {counted(max(1, max_blocks), 'block')}"
    wanted = mine.full_blocks + sum(other.full_blocks for other in others)
    if available < wanted:
        # To the nearest: rounded up, the first of two equal sites that is a little faster takes both of the last two blocks.
        share = max(1, math.floor(available * _share(mine, others) + 0.5))
        if share < blocks:
            blocks, reason = share, f"the epoch's last {available} blocks are shared by measured rate"
    return GrantSize(min(blocks, available), reason)


def _share(mine: Demand, others: Sequence[Demand]) -> float:
    rates = [demand.rate for demand in (mine, *others)]
    if mine.rate is None or any(rate is None for rate in rates):
        return 1.0 / len(rates)
    return mine.rate / sum(rate for rate in rates if rate is not None)


def expected_close(
    begun_at: Instant, leases: Sequence[tuple[Lease, float | None]], demands: Sequence[Demand]
) -> Instant | None:
    """When the round can be expected to close.

    The pace is set by whoever can end a full phase first, but no lease that is already out is outrun.

    Args:
        begun_at: when the round began, now if it did not yet.
        leases: live leases of the round, each with its site's rate in blocks per second.
        demands: all live sites.
    """
    ends = [lease.granted_at + 1000 * lease.blocks / rate for lease, rate in leases if rate]
    full = [demand.seconds for demand in demands if demand.seconds is not None]
    if full:
        ends.append(begun_at + 1000 * min(full))
    return Instant(round(max(ends))) if ends else None
