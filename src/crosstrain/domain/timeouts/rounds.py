"""Leases, rounds and jobs."""

from __future__ import annotations

from crosstrain.domain.site import TTL_ALPHA, TTL_BETA, time_to_live
from crosstrain.domain.timeouts.circumstances import HEARTBEAT_S, SLACK, TTL_FLOOR_S, Circumstances
from crosstrain.domain.timeouts.row import Timeout, fixed

BOOT_PATIENCE_S = 900.0
PHASE_PATIENCE_S = 1800.0
JOIN_PATIENCE_S = 60.0
SILENT_BEATS = 3
CUTOFF_S = 7200.0
"""Four rounds of half an hour."""
CUTOFF_ROUNDS = 3.0
"""Times an undisturbed round."""
DRAIN_S = 60.0
MARGIN_S = 60.0
CHECKPOINT_EVERY_S = 600.0
START_AFTER_S = 600.0


def drain_s(block_s: float, checkpoint_s: float, upload_s: float) -> float:
    """How long before a cutoff holders are asked to stop: they end a block, save and send."""
    return block_s + checkpoint_s + upload_s


def silence_ms(heartbeat_ms: int, ttl_floor_ms: int) -> int:
    """How long nothing is heard of a site until it is gone, in milliseconds."""
    return max(ttl_floor_ms, SILENT_BEATS * heartbeat_ms)


def of_leases(found: Circumstances) -> tuple[Timeout, ...]:
    """Life of a lease and of its holder."""
    return (
        fixed(
            "heartbeat",
            HEARTBEAT_S,
            "default of `lease.heartbeat_s`: 1,000 sites are 200 a second, which is hardly noticed",
        ),
        *_of_ttl(found),
        Timeout(
            "a site without a heartbeat",
            silence_ms(round(1000 * found.heartbeat_s), round(1000 * found.ttl_floor_s)) / 1000,
            f"max(floor, {SILENT_BEATS} x heartbeat)",
            "then it is gone from the status, and waited for by nobody",
        ),
        fixed(
            "trainer's start",
            BOOT_PATIENCE_S,
            "imports and compilation from a shared file system",
            "lease.boot_patience_s",
        ),
        Timeout(
            "any other phase without progress",
            max(PHASE_PATIENCE_S, SLACK * max(found.block_s, found.checkpoint_s)),
            f"max({PHASE_PATIENCE_S:g} s, {SLACK:g} x the longer of block and checkpoint)",
            "the longest healthy silence; transfers show progress and are never silent",
            "lease.phase_patience_s",
        ),
        Timeout(
            "a site that has not asked yet",
            max(JOIN_PATIENCE_S, 1.5 * found.download_s),
            f"max({JOIN_PATIENCE_S:g} s, 1.5 x download)",
            "a site that fetches the generation is about to ask",
            "lease.join_patience_s",
        ),
    )


def _of_ttl(found: Circumstances) -> tuple[Timeout, ...]:
    ttl_ms = time_to_live(round(1000 * found.ttl_floor_s), 1000 * found.heartbeat_s, 1000 * found.rtt_s)
    return (
        Timeout(
            "time to live of a lease",
            ttl_ms / 1000,
            f"max(floor, {TTL_ALPHA:g} x report interval + {TTL_BETA:g} x round trip)",
            "two reports may be lost (arXiv 2610.03457)",
        ),
        Timeout(
            "floor of the time to live",
            max(TTL_FLOOR_S, TTL_ALPHA * found.heartbeat_s + TTL_BETA * found.rtt_s),
            f"max({TTL_FLOOR_S:g} s, {TTL_ALPHA:g} x heartbeat + {TTL_BETA:g} x round trip)",
            "six heartbeats: a short cut of the network, and a site whose round trip is not measured yet, cost no lease",
            "lease.ttl_floor_s",
        ),
    )


def of_rounds(found: Circumstances) -> tuple[Timeout, ...]:
    """A round from its start to its cutoff."""
    drain = drain_s(found.block_s, found.checkpoint_s, found.upload_s)
    exchange = found.download_s + found.checkpoint_s + found.upload_s
    return (
        fixed("other sites at the start", START_AFTER_S, "default of `round.start_after_s`: jobs that start together"),
        Timeout(
            "cutoff of a round",
            CUTOFF_ROUNDS * (found.round_s + exchange),
            f"{CUTOFF_ROUNDS:g} x (inner phase + download + checkpoint + upload)",
            f"a site that needs longer is given less work instead; {CUTOFF_S:g} s where nothing is set",
            "round.cutoff_s",
        ),
        Timeout(
            "drain before the cutoff",
            drain,
            "block + checkpoint + upload",
            f"what holders still do when they are asked to stop; {DRAIN_S:g} s where nothing is set",
            "round.drain_s",
        ),
        Timeout(
            "margin before a job's end",
            max(MARGIN_S, drain / 2),
            f"max({MARGIN_S:g} s, half the drain)",
            "on top of the measured block, checkpoint and upload, which are averages",
            "site.margin_s",
        ),
        fixed(
            "checkpoint within a phase",
            CHECKPOINT_EVERY_S,
            "default of `site.checkpoint_s`: a kill costs ten minutes, a checkpoint of half a minute a twentieth",
        ),
    )
