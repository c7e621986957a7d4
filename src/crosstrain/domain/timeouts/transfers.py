"""Weights on their way, and the object store."""

from __future__ import annotations

from crosstrain.domain.timeouts.circumstances import Circumstances
from crosstrain.domain.timeouts.requests import REQUEST_S
from crosstrain.domain.timeouts.row import Timeout, fixed

CREW_LOOK_S = 0.2
PAUSE_LOOK_S = 2.0
VERIFY_WAIT_S = 15.0
LOCK_STUCK_S = 15.0
LOCK_LOOK_S = 0.02
COMPLETE_WAIT_S = 3.0
STORE_PATIENCE_S = 60.0
STORE_AVOIDED_S = 3600.0
STORE_SILENT_S = 30.0
STORE_BRIEF_S = 4.0
SIGNED_S = 12 * 3600
GRACE_S = 3600.0
INSPECTION_S = 86400.0
COLLECT_S = 300.0


def of_blobs(found: Circumstances) -> tuple[Timeout, ...]:
    """Uploads and downloads."""
    rule, reason = "size / rate + 2 round trips", "expected; it is tried until the job ends"
    return (
        Timeout("download of a generation", found.download_s, rule, reason),
        Timeout("upload of a delta", found.upload_s, rule, reason),
        fixed("a transfer's connection without a byte", REQUEST_S, "a dead line; its part is sent again on a new one"),
        fixed(
            "look at a transfer's connections", CREW_LOOK_S, "rate and signals are seen so soon, for no processor time"
        ),
        fixed(
            "look during a transfer's pause", PAUSE_LOOK_S, "what another connection ended is not waited for to the end"
        ),
        fixed(
            "the same blob, verified for another",
            VERIFY_WAIT_S,
            "half of an answer's patience; the client asks again then",
        ),
        fixed(
            "a process that holds a transfer's file",
            LOCK_STUCK_S,
            "as long as one write and one fsync at most; one that is stopped keeps it, and a copy is gone on with",
        ),
        fixed(
            "look at such a file's lock", LOCK_LOOK_S, "soon beside a write, and only where another process is at work"
        ),
    )


def of_stores(_found: Circumstances) -> tuple[Timeout, ...]:
    """The way past the coordinator, and what is removed when."""
    return (
        fixed(
            "an object store at which nothing arrives",
            STORE_PATIENCE_S,
            "every connection failed several times; bytes go through the coordinator then",
        ),
        fixed(
            "an object store that is avoided",
            STORE_AVOIDED_S,
            "every trial costs a minute; it may be back after an hour",
        ),
        fixed(
            "the coordinator's store, without a byte",
            STORE_SILENT_S,
            "services join the parts of large objects in seconds; then it is asked again, three times in all",
        ),
        fixed(
            "the same while an object is removed",
            STORE_BRIEF_S,
            "inside a transaction, which PostgreSQL ends after a silence of 10 s and for which others wait; tried again later",
        ),
        fixed("a signed address", SIGNED_S, "longer than most transfers; one that takes longer asks for another"),
        fixed("an upload past the coordinator, verified", COMPLETE_WAIT_S, "proxies cut what is silent for long"),
        fixed(
            "a blob that nothing refers to",
            GRACE_S,
            "from the last byte to the contribution, and from a merge's files to its transaction, it is minutes at most",
        ),
        fixed("a refused delta", INSPECTION_S, "for people to look at: a day, so that somebody is awake"),
        fixed("look for blobs to remove", COLLECT_S, "often beside the hour that they stay, seldom beside all else"),
    )
