"""Every duration that something waits for, derived from the length of a round, the bytes that move and the measured link.

This module is where such numbers come from: programs take the constants, the run file its defaults, and `derive` puts what
a given run needs beside what its run file sets. A timeout shorter than what it waits for makes healthy work fail and
repeats it; one much longer hides a fault. So each is a small multiple of the slowest healthy case.
"""

from __future__ import annotations

from dataclasses import dataclass

from crosstrain.domain.site import TTL_ALPHA, TTL_BETA, time_to_live

# -- requests -----------------------------------------------------------------------------------------------------------

CONNECT_S = 10.0
"""The kernel repeats a lost SYN after 1, 3 and 7 s: three losses in a row fit."""
REQUEST_S = 30.0
"""A healthy coordinator answers in milliseconds; at worst it waits for the database's lock, which is given up after 30 s."""
SHORTEST_REQUEST_S = 5.0
"""No answer is given up earlier, however near the caller's deadline: a busy machine pauses for seconds."""
FIRST_RETRY_S = 0.2
"""After one lost packet. Doubled with every failure, and spread by half either way."""
LONGEST_RETRY_S = 20.0
"""A coordinator that comes back is found within this time; 1,000 sites then still ask it at most 50 times a second."""
LEAVE_S = 5.0
"""How long a site that leaves says goodbye: batch systems give about 30 s between the signal and the kill, and without the
goodbye the lease lapses after its TTL."""

# -- liveness -----------------------------------------------------------------------------------------------------------

HEARTBEAT_S = 5.0
"""1,000 sites are then 200 heartbeats a second, which a coordinator hardly notices (docs/measurements.md)."""
TTL_FLOOR_S = 30.0
"""Six heartbeats: a short cut of the network costs no lease."""
BOOT_PATIENCE_S = 900.0
"""Imports from a shared file system and compilation take minutes on some machines."""
PHASE_PATIENCE_S = 1800.0
"""The longest healthy silence is one checkpoint on a busy shared file system."""
JOIN_PATIENCE_S = 60.0
"""Adopting a generation of some 100 MB and asking for work."""
TAKEOVER_S = 15.0
"""Three pulses: a coordinator that stands still for that long has lost its requests anyway."""

# -- rounds and jobs ----------------------------------------------------------------------------------------------------

CUTOFF_S = 7200.0
"""Four rounds of half an hour."""
DRAIN_S = 60.0
MARGIN_S = 60.0
"""Kept free before a job's end: the measures of checkpoint and upload are averages."""
CHECKPOINT_EVERY_S = 600.0
START_AFTER_S = 600.0

# -- blobs that are not needed -----------------------------------------------------------------------------------------

GRACE_S = 3600.0
"""What nothing refers to stays so long: from the last byte of an upload to its contribution, and from the files of a merge to
its transaction, it is minutes at most."""
INSPECTION_S = 86400.0
"""A refused delta stays so long for people to look at: a day, so that somebody is awake."""
COLLECT_S = 300.0
"""How often the coordinator looks for blobs to remove: often beside the grace, seldom beside everything else."""

# -- the mailbox --------------------------------------------------------------------------------------------------------

FIRST_LOOK_S = 0.02
"""How soon a mailbox is looked into again after something happened in it."""
LONGEST_LOOK_S = 2.0
"""... and when nothing does: half an operation a second and file, which no parallel file system notices."""
LOOK_GROWTH = 1.5
RELAY_PULSE_S = 2.0
"""How often a relay shows that it lives, and renews the progress of a transfer."""
RELAY_SILENT_S = 15.0
"""A relay without a pulse for so long is away; shared file systems show a change within some seconds."""
SENDER_PULSE_S = 30.0
"""How often a site renews a request that it still waits for."""
SENDER_GONE_S = 3600.0
"""Its files go when a site renewed nothing for an hour; a site that was only stopped makes them again."""
FILE_LATE_S = 60.0
"""A file of which a letter tells may show that much later on another node: NFS clients believe for so long that a name is not
there (`acdirmax`)."""
BLOB_KEPT_S = 600.0
"""A blob that no site asks for stays so long in the mailbox: sites that share it adopt a generation within minutes."""

# -- transfers ----------------------------------------------------------------------------------------------------------

SLACK = 4.0
"""A link is given up for dead when it is this many times slower than it was measured."""
SLOWEST_LINK = 64 << 10
"""Bytes per second of the slowest link that is useful at all; assumed of one that was not measured."""
STORE_PATIENCE_S = 60.0
"""Attempts at the object store fail for so long while nothing arrives: then the way through the coordinator is taken."""
STORE_AVOIDED_S = 3600.0
"""How long that lasts: a minute is lost with every trial, and a store that was away for a moment is used again."""
CUTOFF_ROUNDS = 3.0
"""Times an undisturbed round: a site that needs longer is given less work instead."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the durations follow from.

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
    """

    round_s: float
    block_s: float
    download_bytes: int
    upload_bytes: int
    rate: float | None = None
    rtt_s: float = 0.1
    checkpoint_s: float = 30.0
    heartbeat_s: float = HEARTBEAT_S
    ttl_floor_s: float = TTL_FLOOR_S


@dataclass(frozen=True, slots=True)
class Timeout:
    """One row of the table.

    Attributes:
        name: what is waited for.
        seconds: how long.
        rule: how it is derived, in words.
        reason: why so.
        key: the key of the run file that sets it, empty if none does.
    """

    name: str
    seconds: float
    rule: str
    reason: str
    key: str = ""


def connect_s(rtt_s: float) -> float:
    """How long a connection may take to come about."""
    return max(CONNECT_S, SLACK * rtt_s)


def request_s(rtt_s: float) -> float:
    """How long an answer to a control request may take."""
    return max(REQUEST_S, SLACK * rtt_s)


def attempt_s(deadline_s: float, rtt_s: float) -> float:
    """How long one attempt of a request may take whose caller gives up after `deadline_s`: never so short that no answer
    could come."""
    return min(request_s(rtt_s), max(deadline_s, SHORTEST_REQUEST_S, TTL_BETA * rtt_s))


def beat_s(heartbeat_s: float, rtt_s: float) -> float:
    """How long one heartbeat is tried: the next one says more than its repetition would."""
    return max(heartbeat_s, TTL_BETA * rtt_s)


def transfer_s(size: int, rate: float | None, rtt_s: float) -> float:
    """How long `size` bytes take as measured; on an unmeasured link the longest time that is of use."""
    return 2 * rtt_s + size / (rate or SLOWEST_LINK)


def poll_s(heartbeat_s: float) -> float:
    """How soon a site that waits asks again."""
    return min(5.0, max(0.05, heartbeat_s / 4))


def drain_s(block_s: float, checkpoint_s: float, upload_s: float) -> float:
    """How long before a cutoff holders are asked to stop: they end a block, save and send."""
    return block_s + checkpoint_s + upload_s


def look_again_s(before_s: float) -> float:
    """The next pause between two looks into a mailbox in which nothing happened."""
    return min(LONGEST_LOOK_S, LOOK_GROWTH * before_s)


def derive(found: Circumstances) -> tuple[Timeout, ...]:
    """The whole table for a run."""
    return (*_requests(found), *_transfers(found), *_liveness(found), *_rounds(found))


def _requests(found: Circumstances) -> tuple[Timeout, ...]:
    return (
        Timeout(
            "connection",
            connect_s(found.rtt_s),
            f"max({CONNECT_S:g} s, {SLACK:g} x round trip)",
            "three lost SYN packets in a row",
        ),
        Timeout(
            "answer to a request",
            request_s(found.rtt_s),
            f"max({REQUEST_S:g} s, {SLACK:g} x round trip)",
            "the longest that a healthy coordinator waits for its database; then it is asked again, until the job ends",
        ),
        Timeout(
            "pause between attempts",
            LONGEST_RETRY_S,
            f"{FIRST_RETRY_S:g} s, doubled up to {LONGEST_RETRY_S:g} s, times 0.5 to 1.5",
            "a coordinator that comes back is found soon and not run over",
        ),
        Timeout(
            "one heartbeat",
            beat_s(found.heartbeat_s, found.rtt_s),
            f"max(heartbeat, {TTL_BETA:g} x round trip)",
            "the next one says more than its repetition",
        ),
        Timeout(
            "goodbye of a site",
            LEAVE_S,
            f"{LEAVE_S:g} s",
            "it fits between a batch system's signal and its kill",
        ),
        Timeout(
            "polling by a waiting site",
            poll_s(found.heartbeat_s),
            "heartbeat / 4, 0.05 s to 5 s",
            "the start of a round is heard within a small part of it",
        ),
        Timeout(
            "look into a mailbox",
            LONGEST_LOOK_S,
            f"{FIRST_LOOK_S:g} s, times {LOOK_GROWTH:g} while nothing happens, up to {LONGEST_LOOK_S:g} s",
            "quick while requests go to and fro, unnoticed by the file system otherwise",
        ),
    )


def _transfers(found: Circumstances) -> tuple[Timeout, ...]:
    rate, rtt = found.rate, found.rtt_s
    return (
        Timeout(
            "a transfer's connection without a byte",
            REQUEST_S,
            f"{REQUEST_S:g} s",
            "a dead line; its part is sent again on a new one",
        ),
        Timeout(
            "an object store at which nothing arrives",
            STORE_PATIENCE_S,
            f"{STORE_PATIENCE_S:g} s",
            f"every connection failed several times; for {STORE_AVOIDED_S / 60:g} min bytes go through the coordinator then",
        ),
        Timeout(
            "download of a generation",
            transfer_s(found.download_bytes, rate, rtt),
            "size / rate + 2 round trips",
            "expected; it is tried until the job ends",
        ),
        Timeout(
            "upload of a delta",
            transfer_s(found.upload_bytes, rate, rtt),
            "size / rate + 2 round trips",
            "expected; it is tried until the job ends",
        ),
    )


def _liveness(found: Circumstances) -> tuple[Timeout, ...]:
    ttl_ms = time_to_live(round(1000 * found.ttl_floor_s), 1000 * found.heartbeat_s, 1000 * found.rtt_s)
    adopt = transfer_s(found.download_bytes, found.rate, found.rtt_s)
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
            "a site whose round trip is not measured yet is not lost",
            "lease.ttl_floor_s",
        ),
        Timeout(
            "trainer's start",
            BOOT_PATIENCE_S,
            f"{BOOT_PATIENCE_S:g} s",
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
            max(JOIN_PATIENCE_S, 1.5 * adopt),
            f"max({JOIN_PATIENCE_S:g} s, 1.5 x download)",
            "a site that fetches the generation is about to ask",
            "lease.join_patience_s",
        ),
        Timeout(
            "a standby's takeover",
            TAKEOVER_S,
            f"{TAKEOVER_S:g} s",
            "three pulses of the coordinator that serves",
            "coordinator.takeover_s",
        ),
    )


def _rounds(found: Circumstances) -> tuple[Timeout, ...]:
    upload = transfer_s(found.upload_bytes, found.rate, found.rtt_s)
    drain = drain_s(found.block_s, found.checkpoint_s, upload)
    exchange = transfer_s(found.download_bytes, found.rate, found.rtt_s) + found.checkpoint_s + upload
    return (
        Timeout(
            "cutoff of a round",
            CUTOFF_ROUNDS * (found.round_s + exchange),
            f"{CUTOFF_ROUNDS:g} x (inner phase + download + checkpoint + upload)",
            "a site that needs longer is given less work instead",
            "round.cutoff_s",
        ),
        Timeout(
            "drain before the cutoff",
            drain,
            "block + checkpoint + upload",
            "what holders still do when they are asked to stop",
            "round.drain_s",
        ),
        Timeout(
            "margin before a job's end",
            max(MARGIN_S, drain / 2),
            f"max({MARGIN_S:g} s, half the drain)",
            "on top of the measured block, checkpoint and upload, which are averages",
            "site.margin_s",
        ),
    )
