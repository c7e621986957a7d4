"""The coordinator's process: its HTTP, its database, its standby."""

from __future__ import annotations

from crosstrain.domain.timeouts.circumstances import TAKEOVER_S, Circumstances
from crosstrain.domain.timeouts.row import Timeout, fixed

KEEP_ALIVE_S = 75.0
SHUTDOWN_S = 10.0
MORE_BODY_S = 0.001
FRONT_PATIENCE_S = 300.0
LONGEST_STEP_PAUSE_S = 1.0
FAULT_PAUSE_S = 5.0
COMPLAINT_S = 60.0
LONGEST_STANDBY_LOOK_S = 0.5
DATABASE_LOCK_S = 30.0
WRITER_SILENT_S = 10.0
DATABASE_CONNECT_S = 10.0
DATABASE_SILENT_S = 20.0
DATABASE_PROBE_S = 10.0
DATABASE_PROBE_AGAIN_S = 5.0


def step_pause_s(ttl_floor_s: float) -> float:
    """The pause between two looks of the coordinator at its round."""
    return min(LONGEST_STEP_PAUSE_S, ttl_floor_s / 4)


def pulse_s(takeover_s: float) -> float:
    """How often a coordinator shows its standby that it lives."""
    return takeover_s / 3


def standby_look_s(takeover_s: float) -> float:
    """How often a standby looks."""
    return min(LONGEST_STANDBY_LOOK_S, takeover_s / 10)


def of_coordinators(found: Circumstances) -> tuple[Timeout, ...]:
    """HTTP and the loop."""
    return (
        fixed(
            "a connection that rests",
            KEEP_ALIVE_S,
            "longer than proxies keep it, so that they close it, and not in a request",
        ),
        fixed("more of a body, at a thread", MORE_BODY_S, "a quick line brings it in a tenth of that"),
        fixed("requests in hand at the end", SHUTDOWN_S, "a transfer that is cut goes on where it was"),
        fixed(
            "nginx, for the coordinator",
            FRONT_PATIENCE_S,
            "verification of the largest blob, ten times an answer's patience",
        ),
        Timeout(
            "look at the round",
            step_pause_s(found.ttl_floor_s),
            f"a quarter of the floor of the time to live, {LONGEST_STEP_PAUSE_S:g} s at most",
            "a lease lapses late by no more; every request wakes it at once",
        ),
        fixed(
            "disk or database that failed",
            FAULT_PAUSE_S,
            "a full disk stops the merge, and a line of the log every 5 s says so",
        ),
        fixed("next line on a fault that requests meet", COMPLAINT_S, "every site hears of it, again and again"),
        *_of_standbys(found),
    )


def _of_standbys(found: Circumstances) -> tuple[Timeout, ...]:
    return (
        fixed(
            "a standby's takeover",
            TAKEOVER_S,
            "three pulses: who stands still so long lost its requests",
            "coordinator.takeover_s",
        ),
        Timeout("pulse of a coordinator", pulse_s(found.takeover_s), "takeover / 3", "two may be lost"),
        Timeout(
            "look of a standby",
            standby_look_s(found.takeover_s),
            f"takeover / 10, {LONGEST_STANDBY_LOOK_S:g} s at most",
            "a coordinator that died is followed at once",
        ),
    )


def of_databases(_found: Circumstances) -> tuple[Timeout, ...]:
    """SQLite and PostgreSQL."""
    return (
        fixed("the write before", DATABASE_LOCK_S, "writes take milliseconds, a checkpoint of SQLite's log seconds"),
        fixed(
            "a writer that says nothing", WRITER_SILENT_S, "PostgreSQL ends its transaction: a stuck one blocks nobody"
        ),
        fixed("connection to PostgreSQL", DATABASE_CONNECT_S, "as for any connection"),
        fixed(
            "bytes that PostgreSQL does not confirm",
            DATABASE_SILENT_S,
            "a server that vanished is noticed in half a minute",
        ),
        fixed("first probe of a resting connection", DATABASE_PROBE_S, "likewise, with three probes"),
        fixed("next probe", DATABASE_PROBE_AGAIN_S, "likewise"),
    )
