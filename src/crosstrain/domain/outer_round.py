"""The elastic barrier: when a round opens, when it closes, and why not yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crosstrain.domain.ids import Generation, Instant, SiteName
from crosstrain.domain.plural import counted
from crosstrain.domain.site import Attendance
from crosstrain.domain.verdict import Verdict


@dataclass(frozen=True, slots=True)
class BarrierRules:
    """Durations in milliseconds.

    Attributes:
        cutoff_ms: this long after its beginning a round with a contribution closes, whoever is still training.
        drain_ms: holders are asked to stop this long before the cutoff.
        join_patience_ms: how long a round waits for live sites that have not asked yet.
        start_sites: generation 0 is held back until this many sites are there ...
        start_after_ms: ... or this long after the first came.
    """

    cutoff_ms: int
    drain_ms: int
    join_patience_ms: int
    start_sites: int
    start_after_ms: int


ROOM = Verdict(True, "there is room")


@dataclass(frozen=True, slots=True)
class RoundView:
    """A snapshot of the open round.

    Attributes:
        generation: the generation that leases of this round start from.
        begun_at: when the first lease was granted that is live or contributed; a round that nobody trains in takes no
            time, however long all sites are in their queues.
        contributions: sites whose contribution was accepted.
        holders: sites with a live lease, in the order of grant.
        attendance: all live sessions.
        room: whether the disk holds what the round adds; of one that nobody trains in yet.
        settled_at: when the coordinator started; before one join patience has passed it has not heard everybody.
    """

    generation: Generation
    begun_at: Instant
    contributions: tuple[SiteName, ...]
    holders: tuple[SiteName, ...]
    attendance: tuple[Attendance, ...]
    settled_at: Instant
    room: Verdict = ROOM


MOST_NAMES = 8
"""Sites that a sentence names."""


def may_close(view: RoundView, rules: BarrierRules, now: Instant) -> Verdict:
    """Whether the next generation can be made from the contributions that are in."""
    cutoff = Instant(view.begun_at + rules.cutoff_ms)
    if not view.contributions:
        if view.holders:
            return Verdict(False, f"waiting for the first contribution, from {_names(view.holders)}")
        return Verdict(False, "waiting for a site to take a lease") if view.room else view.room
    if now >= cutoff:
        missing = f"; not waiting for {_names(view.holders)}" if view.holders else ""
        return Verdict(True, f"the round's cutoff of {rules.cutoff_ms // 1000} s passed{missing}")
    if view.holders:
        return Verdict(
            False, f"waiting for {_names(view.holders)} to contribute; at the cutoff the round closes without", cutoff
        )
    coming = [attendant.site for attendant in view.attendance if attendant.on_its_way]
    patience = Instant(max(view.begun_at, view.settled_at) + rules.join_patience_ms)
    if coming and now < patience:
        return Verdict(False, f"waiting for {_names(coming)} to ask for work; then the round closes without", patience)
    sites = len(view.contributions)
    return Verdict(True, f"all {sites} leases are in" if sites > 1 else "its only lease is in")


def may_start(sites: int, first_came_at: Instant, rules: BarrierRules, now: Instant) -> Verdict:
    """Whether the first leases may be given out."""
    until = Instant(first_came_at + rules.start_after_ms)
    if sites >= rules.start_sites or now >= until:
        return Verdict(True, f"{sites} of {counted(rules.start_sites, 'site')} came")
    return Verdict(
        False,
        f"waiting for {counted(rules.start_sites, 'site')}, {sites} came; then it starts with those that are there",
        until,
    )


def must_drain(begun_at: Instant, rules: BarrierRules, now: Instant) -> Verdict:
    """Whether holders should stop at their next block boundary."""
    cutoff = Instant(begun_at + rules.cutoff_ms)
    if now >= cutoff - rules.drain_ms:
        return Verdict(True, "the round's cutoff is near: stop at the next block boundary and contribute", cutoff)
    return Verdict(False, "the round has time", Instant(cutoff - rules.drain_ms))


def _names(sites: Sequence[SiteName]) -> str:
    """Whoever reads of a thousand sites learns no more from all their names than from the first."""
    names = sorted(set(sites))
    more = len(names) - MOST_NAMES
    return ", ".join(names) if more < 2 else f"{', '.join(names[:MOST_NAMES])} and {more} more"
