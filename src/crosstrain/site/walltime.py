"""How long the job may still run, and whether that is enough for what comes next. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from crosstrain.domain.verdict import Verdict

MEMORY = 0.5
"""Weight of the newest measurement in the moving averages."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What this site measured of itself.

    Attributes:
        block_s: seconds per block while training, None before the first phase.
        closing_s: seconds from the last step to the accepted contribution: checkpoint, export and upload.
    """

    block_s: float | None = None
    closing_s: float | None = None

    def after(self, block_s: float | None = None, closing_s: float | None = None) -> Pace:
        """With new measurements taken in."""
        return Pace(_mix(self.block_s, block_s), _mix(self.closing_s, closing_s))


def _mix(old: float | None, new: float | None) -> float | None:
    if new is None or old is None:
        return old if new is None else new
    return MEMORY * new + (1 - MEMORY) * old


def may_begin(left_s: float | None, pace: Pace, margin_s: float) -> Verdict:
    """Whether a phase of at least one block still fits before the job's end."""
    if left_s is None:
        return Verdict(True, "the job has no known end")
    need = margin_s + (pace.closing_s or 0.0) + (pace.block_s or 0.0)
    if left_s > need:
        return Verdict(True, f"{left_s:.0f} s are left, {need:.0f} s are needed")
    return Verdict(False, f"the job ends in {left_s:.0f} s, a block with checkpoint and upload needs {need:.0f} s")


def must_stop(left_s: float | None, pace: Pace, margin_s: float) -> Verdict:
    """Whether a running phase must end at its next block boundary to be contributed in time."""
    if left_s is None:
        return Verdict(False, "the job has no known end")
    need = margin_s + (pace.closing_s or 0.0) + (pace.block_s or 0.0)
    if left_s > need:
        return Verdict(False, f"{left_s:.0f} s are left")
    return Verdict(True, f"the job ends in {left_s:.0f} s; checkpoint and upload need {need:.0f} s")


def blocks_that_fit(left_s: float | None, pace: Pace, margin_s: float) -> int | None:
    """How many blocks can be trained and contributed before the job's end; None if nothing limits them."""
    if left_s is None or pace.block_s is None or pace.block_s <= 0:
        return None
    return max(1, int((left_s - margin_s - (pace.closing_s or 0.0)) / pace.block_s))
