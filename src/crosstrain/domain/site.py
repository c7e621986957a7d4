"""A site's presence: phases, heartbeats, and the verdict on its liveness.

A heartbeat says "the agent lives"; progress says "the work advances". A lease needs both: its deadline is
min(heartbeat + TTL, last progress + the phase's patience).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from crosstrain.domain.ids import Instant, SessionId, SiteName, Token

TTL_ALPHA = 2.5
"""Progress reports that may be missed before a lease lapses (arXiv 2610.03457)."""
TTL_BETA = 2.0
"""Round trips added to the TTL: one for the request, one for its retry."""


class Phase(StrEnum):
    """What a site session is doing."""

    BOOTING = "booting"
    INITIALISING = "initialising"
    ADOPTING = "adopting"
    EVALUATING = "evaluating"
    WAITING = "waiting"
    COMPILING = "compiling"
    TRAINING = "training"
    CHECKPOINTING = "checkpointing"
    UPLOADING = "uploading"
    DRAINING = "draining"


APART = frozenset({Phase.BOOTING, Phase.INITIALISING, Phase.DRAINING})
"""Phases in which a session neither takes part in the round nor is about to."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long, in milliseconds, a phase may go without progress."""

    booting: int
    other: int

    def of(self, phase: Phase) -> int:
        return self.booting if phase is Phase.BOOTING else self.other


@dataclass(frozen=True, slots=True)
class Beat:
    """What a heartbeat says.

    Attributes:
        phase: what the session is doing.
        done: progress within the phase (steps, bytes); only its change matters.
        total: what `done` counts towards, 0 if unknown.
        loss: newest training loss in nats per token.
        detail: a short text for people, for example an upload's rate.
        rtt_ms: the client's measure of one round trip.
        blocks: how many blocks of its lease are trained.
        token: the lease that it is about. A new lease is progress, even if its trainer has not moved yet.
        sending: a second lease, whose finished work is on its way meanwhile.
        sent: bytes of it that have arrived.
        beside: a short text for people: what is carried beside the phase, and how fast.
    """

    phase: Phase
    done: int = 0
    total: int = 0
    loss: float | None = None
    detail: str = ""
    rtt_ms: float = 0.0
    blocks: int = 0
    token: Token | None = None
    sending: Token | None = None
    sent: int = 0
    beside: str = ""


@dataclass(frozen=True, slots=True)
class Presence:
    """What the coordinator knows of a live session, from its heartbeats and requests alone.

    Attributes:
        progressed_at: when phase or progress last changed.
        asked_generation: the generation for which this session last asked for work and got none, or -1.
        answer: the sentence it was given then.
        sent_at: when the sending beside its work last advanced.
    """

    session: SessionId
    site: SiteName
    seen_at: Instant
    progressed_at: Instant
    beat: Beat
    asked_generation: int = -1
    answer: str = ""
    sent_at: Instant | None = None

    def after(self, beat: Beat, now: Instant) -> Presence:
        """This presence after another heartbeat."""
        same = (beat.phase, beat.done, beat.token) == (self.beat.phase, self.beat.done, self.beat.token)
        sent_same = (beat.sending, beat.sent) == (self.beat.sending, self.beat.sent)
        return Presence(
            self.session,
            self.site,
            now,
            self.progressed_at if same else now,
            beat,
            self.asked_generation,
            self.answer,
            self.sent_at if sent_same else now,
        )


def time_to_live(floor_ms: int, interval_ms: float, rtt_ms: float) -> int:
    """TTL in milliseconds: max(floor, 2.5 x seconds between progress reports + 2 x RTT)."""
    return max(floor_ms, round(TTL_ALPHA * interval_ms + TTL_BETA * rtt_ms))


def deadline(presence: Presence, ttl_ms: int, patience: Patience) -> Instant:
    """When the leases of this session lapse if nothing more is heard."""
    return Instant(
        min(presence.seen_at + ttl_ms, presence.progressed_at + max(ttl_ms, patience.of(presence.beat.phase)))
    )


def deadline_of_sent(presence: Presence, ttl_ms: int, patience: Patience) -> Instant:
    """When the lease lapses whose work is sent beside the next phase, if nothing more is heard."""
    since = presence.seen_at if presence.sent_at is None else presence.sent_at
    return Instant(min(presence.seen_at + ttl_ms, since + max(ttl_ms, patience.of(Phase.UPLOADING))))


def deadline_of_waiting(presence: Presence, ttl_ms: int) -> Instant:
    """When a lease lapses whose phase is trained and cannot be contributed before the next generation is there: waiting for
    that is no lack of progress."""
    return Instant(presence.seen_at + ttl_ms)


@dataclass(frozen=True, slots=True)
class Attendance:
    """One live session as the round rule sees it."""

    site: SiteName
    phase: Phase
    token: Token | None
    contributed: bool
    asked: bool

    @property
    def on_its_way(self) -> bool:
        """Alive, past booting, and neither holding a lease, nor heard in this round, nor told to wait."""
        return self.token is None and not self.contributed and not self.asked and self.phase not in APART
