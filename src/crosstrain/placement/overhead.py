"""What a job does not train: from its start to its first lease, and from its last block to its end. Pure.

Measured where own jobs ran: a site asks for its first lease when the trainer is up and the generation is there, and its
contribution comes when checkpoint and upload are done. Where nothing was measured, as the run file says, else assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from crosstrain.domain.ids import Instant
from crosstrain.domain.plural import counted
from crosstrain.placement.site_queue import QueueState, SiteQueue

STARTUP_S = 300.0
"""Assumed: imports from a shared file system, compilation, download of a generation."""
EXCHANGE_S = 120.0
"""Assumed: checkpoint and upload."""
RECENT = 5
"""Jobs, or phases, that the median is of."""
SLACK_MS = 60_000
"""The clocks of scheduler and coordinator may differ by this."""


@dataclass(frozen=True, slots=True)
class Begun:
    """When a session was opened, and when it was granted its first lease."""

    opened_at: Instant
    granted_at: Instant


@dataclass(frozen=True, slots=True)
class Overhead:
    """Seconds of every job without training.

    Attributes:
        startup_s: from the job's start to its first step.
        tail_s: from its last step to its end.
        reason: one sentence on where both come from.
    """

    startup_s: float
    tail_s: float
    reason: str


def overhead(queue: SiteQueue, begun: Sequence[Begun], exchanges_s: Sequence[float], margin_s: float) -> Overhead:
    """What a job at this site loses.

    Args:
        begun: sessions of the site that were granted a lease.
        exchanges_s: checkpoint and upload of its last phases.
        margin_s: `site.margin_s`, kept free before the end on top.
    """
    startup_s, startup = _known(startups(queue, begun), queue.startup_s, STARTUP_S, "job", "startup_s")
    exchange_s, exchange = _known(list(exchanges_s)[-RECENT:], queue.tail_s, EXCHANGE_S, "phase", "tail_s")
    reason = (
        f"a job trains nothing in its first {startup_s:.0f} s ({startup}) and in its last {exchange_s + margin_s:.0f} s "
        f"({exchange}, and {margin_s:.0f} s of margin)"
    )
    return Overhead(startup_s, exchange_s + margin_s, reason)


def startups(queue: SiteQueue, begun: Sequence[Begun]) -> list[float]:
    """Seconds from the start of each recent job to the first lease in it; of jobs without one nothing is known."""
    found = []
    for job in queue.jobs:
        if job.state in (QueueState.RUNNING, QueueState.ENDED) and job.started_at is not None:
            first, last = job.started_at - SLACK_MS, job.started_at + 1000 * job.shape.walltime_s
            granted = [each.granted_at for each in begun if first <= each.opened_at < last]
            if granted:
                found.append(max(0.0, (min(granted) - job.started_at) / 1000))
    return found[-RECENT:]


def _known(measured: Sequence[float], told: float | None, assumed: float, noun: str, key: str) -> tuple[float, str]:
    """Whole seconds, and where they come from."""
    if measured:
        return float(round(median(measured))), f"measured, {counted(len(measured), noun)}"
    return (assumed, f"assumed, see `batch.{key}`") if told is None else (told, "as the run file says")
