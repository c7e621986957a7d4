"""The audit log's vocabulary: one kind per fact worth keeping. Rows are never changed or deleted."""

from __future__ import annotations

from enum import StrEnum


class EventKind(StrEnum):
    """Facts about blocks carry a lease token and a span; the others say what happened to the run or a site."""

    GRANTED = "granted"
    EXPIRED = "expired"
    RELEASED = "released"
    REFUSED = "refused"
    SHED = "shed"
    CONTRIBUTED = "contributed"
    MERGED = "merged"
    DROPPED = "dropped"

    COORDINATOR_STARTED = "coordinator-started"
    SESSION_OPENED = "session-opened"
    SESSION_ENDED = "session-ended"
    ROUND_CLOSED = "round-closed"
    PUBLISHED = "published"
    EVALUATED = "evaluated"
    EPOCH_OPENED = "epoch-opened"
    FINISHED = "finished"
