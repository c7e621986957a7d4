"""Requests to the coordinator."""

from __future__ import annotations

from crosstrain.domain.site import TTL_BETA
from crosstrain.domain.timeouts.circumstances import SLACK, Circumstances
from crosstrain.domain.timeouts.row import Timeout, fixed

CONNECT_S = 10.0
REQUEST_S = 30.0
SHORTEST_REQUEST_S = 5.0
FIRST_RETRY_S = 0.2
"""Doubled with every failure, and spread by half either way."""
LONGEST_RETRY_S = 20.0
FOREVER_S = 10.0 * 365 * 86400
BEAT_ENDS_S = SHORTEST_REQUEST_S + 1
LEAVE_S = 5.0
SHORTEST_POLL_S = 0.05
LONGEST_POLL_S = 5.0
FIRST_CONTACT_S = 60.0
COMMAND_ANSWER_S = 30.0
STATUS_ANSWER_S = 5.0
WATCH_EVERY_S = 1.0
PLAN_EVERY_S = 60.0
JSON_WATCH_S = 60.0
WATCH_ANSWER_S = 3600.0
REPORT_ANSWER_S = 10.0


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


def poll_s(heartbeat_s: float) -> float:
    """How soon a site that waits asks again."""
    return min(LONGEST_POLL_S, max(SHORTEST_POLL_S, heartbeat_s / 4))


def of_sites(found: Circumstances) -> tuple[Timeout, ...]:
    """What a site waits for, and a relay in its place."""
    return (*_of_attempts(found), *_of_presence(found))


def _of_attempts(found: Circumstances) -> tuple[Timeout, ...]:
    return (
        fixed("connection", CONNECT_S, "the kernel repeats a lost SYN after 1, 3 and 7 s: three losses in a row fit"),
        Timeout(
            "answer to a request",
            request_s(found.rtt_s),
            f"max({REQUEST_S:g} s, {SLACK:g} x round trip), a relay's {REQUEST_S:g} s",
            "the longest that a healthy coordinator waits for its database; then it is asked again, until the job ends",
        ),
        fixed(
            "answer shortly before a deadline",
            SHORTEST_REQUEST_S,
            "a busy machine pauses for seconds, so none is given up earlier; two round trips, if that is longer",
        ),
        Timeout(
            "pause between attempts",
            LONGEST_RETRY_S,
            f"{FIRST_RETRY_S:g} s, doubled up to {LONGEST_RETRY_S:g} s, times 0.5 to 1.5",
            "a lost packet costs little; a coordinator that comes back is found soon, by 1,000 sites 50 times a second at most",
        ),
    )


def _of_presence(found: Circumstances) -> tuple[Timeout, ...]:
    return (
        fixed("requests and transfers of a job", FOREVER_S, "ten years, for no end: the batch system ends them"),
        Timeout(
            "one heartbeat",
            beat_s(found.heartbeat_s, found.rtt_s),
            f"max(heartbeat, {TTL_BETA:g} x round trip)",
            "the next one says more than its repetition",
        ),
        fixed(
            "end of the heartbeats", BEAT_ENDS_S, "the one that is under way, if it is answered at once or not at all"
        ),
        fixed(
            "goodbye of a site",
            LEAVE_S,
            "it fits between a batch system's signal and its kill, about 30 s; without it the lease lapses",
        ),
        Timeout(
            "polling by a waiting site",
            poll_s(found.heartbeat_s),
            f"heartbeat / 4, {SHORTEST_POLL_S:g} s to {LONGEST_POLL_S:g} s",
            "the start of a round is heard within a small part of it",
        ),
        fixed(
            "first answer to a site", FIRST_CONTACT_S, "default of `site --connect`: a coordinator that just restarts"
        ),
    )


def of_commands(_found: Circumstances) -> tuple[Timeout, ...]:
    """What commands wait for that people type, or cron."""
    return (
        fixed("answer to `status`", STATUS_ANSWER_S, "a person waits for it"),
        fixed("answer to `plan`, `waits`, `submit`", COMMAND_ANSWER_S, "likewise, and a plan is computed first"),
        fixed("answer to a report of `collect`", REPORT_ANSWER_S, "the report is kept and goes with the next call"),
        fixed("look of `--watch`", WATCH_EVERY_S, "default of `--every`: what a person can follow"),
        fixed(
            "look of `plan --watch`", PLAN_EVERY_S, "default of `--every`: forecasts change with the reports of sites"
        ),
        fixed(
            "answer to `status --watch --json`",
            JSON_WATCH_S,
            "whoever reads it must hear of a coordinator that is gone",
        ),
        fixed("answer to other `--watch`", WATCH_ANSWER_S, "the view stays over a night's restart of the coordinator"),
    )
