"""What was seen of a site's queue: estimates of a wait, and waits that happened.

All durations are seconds. Readings that cannot be are dropped here, once, so that nothing behind it needs to look.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

from crosstrain.domain.ids import Instant

LONGEST_ESTIMATE_S = 60 * 86400.0
"""Beyond it an estimate is absurd: Slurm adds up unlimited jobs in 32 bits."""


class Anomaly(StrEnum):
    """What can be wrong with an estimate."""

    PAST = "past"
    """A start before the probe: late clock, or times rounded to half a minute. Counts as now."""
    ABSURD = "absurd"
    """Further away than `LONGEST_ESTIMATE_S`, or no number. Dropped."""


@dataclass(frozen=True, slots=True)
class Estimates:
    """What one probe of a shape said. None: not asked, or no answer that can be.

    Attributes:
        at: when the probe was made.
        test_only_s: the scheduler's own estimate of the wait.
        plan_s: the wait by an own plan of the visible queue (`queue_plan`).
    """

    at: Instant
    test_only_s: float | None = None
    plan_s: float | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a job waited.

    Attributes:
        submitted_at: or when it became eligible, if later.
        wait_s: until its start; or, if it did not start, until it was last seen waiting.
        started: False makes `wait_s` a lower bound: cancelled, or still waiting.
        estimates: the probe of its shape that was the latest at its submission, if there was one.
    """

    submitted_at: Instant
    wait_s: float
    started: bool = True
    estimates: Estimates | None = None

    @property
    def known_at(self) -> Instant:
        """Before this, nobody knows of it."""
        return Instant(self.submitted_at + round(1000 * self.wait_s))


def sane(estimate_s: float | None) -> tuple[float | None, Anomaly | None]:
    """The estimate as it is used, and what was wrong with it."""
    if estimate_s is None:
        return None, None
    if not isfinite(estimate_s) or estimate_s > LONGEST_ESTIMATE_S:
        return None, Anomaly.ABSURD
    if estimate_s < 0:
        return 0.0, Anomaly.PAST
    return estimate_s, None
