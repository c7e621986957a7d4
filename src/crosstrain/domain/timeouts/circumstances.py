"""What durations follow from: the length of a round, the bytes that move, the measured link."""

from __future__ import annotations

from dataclasses import dataclass

SLACK = 4.0
"""A link is given up for dead when it is this many times slower than it was measured."""
SLOWEST_LINK = 64 << 10
"""Bytes per second of the slowest link that is useful at all; assumed of one that was not measured."""
USUAL_ROUND_S = 1800.0
"""Assumed of an inner phase: half an hour."""
USUAL_RTT_S = 0.1
USUAL_CHECKPOINT_S = 30.0
HEARTBEAT_S = 5.0
TTL_FLOOR_S = 30.0
TAKEOVER_S = 15.0


@dataclass(frozen=True, slots=True)
class Circumstances:
    """One run on one link.

    Attributes:
        round_s: an inner phase of the usual site, seconds.
        block_s: one block of it, seconds.
        download_bytes: the weights of a generation as sites fetch them.
        upload_bytes: a delta as sites send it.
        rate: measured bytes per second, the slower direction; None if nothing was measured.
        rtt_s: measured round trip to the coordinator and back, seconds; through a mailbox that includes its polling.
        checkpoint_s: writing a checkpoint at the site, seconds.
        heartbeat_s: `lease.heartbeat_s`.
        ttl_floor_s: `lease.ttl_floor_s`.
        takeover_s: `coordinator.takeover_s`.
    """

    round_s: float
    block_s: float
    download_bytes: int
    upload_bytes: int
    rate: float | None = None
    rtt_s: float = USUAL_RTT_S
    checkpoint_s: float = USUAL_CHECKPOINT_S
    heartbeat_s: float = HEARTBEAT_S
    ttl_floor_s: float = TTL_FLOOR_S
    takeover_s: float = TAKEOVER_S

    @property
    def download_s(self) -> float:
        """Fetching a generation."""
        return transfer_s(self.download_bytes, self.rate, self.rtt_s)

    @property
    def upload_s(self) -> float:
        """Sending a delta."""
        return transfer_s(self.upload_bytes, self.rate, self.rtt_s)


def transfer_s(size: int, rate: float | None, rtt_s: float) -> float:
    """How long `size` bytes take as measured; on an unmeasured link the longest time that is of use."""
    return 2 * rtt_s + size / (rate or SLOWEST_LINK)
