"""Adaptive conformal levels (Gibbs and Candes, NeurIPS 2021): bands keep their promise in the long run, whatever drifts.

A forecast that promises probability p asks its distribution for the quantile of an adapted level instead. When the true wait becomes
known, the level moves by a step: down after a wait that was inside, up after one that was outside, in proportions that balance at p. An
outcome counts when it is known, with the quantiles that were stated when the job was submitted.
"""

from __future__ import annotations

from collections.abc import Sequence

STEP = 0.035
EDGE = 0.001
"""Adapted levels stay this far inside (0, 1)."""


def adapt(
    adapted: Sequence[float], levels: Sequence[float], stated_s: Sequence[float], wait_s: float
) -> tuple[float, ...]:
    """The adapted levels after one outcome.

    Below the median it counts whether the wait was shorter than stated, from the median on whether it was longer, so that a
    wait equal to the end of a band is inside it: a queue that is often empty has many waits of zero.

    Args:
        adapted: levels so far, of the same length as
        levels: the promised probabilities, increasing.
        stated_s: quantiles that were stated for them.
        wait_s: what happened.
    """
    moved = []
    for now, level, stated in zip(adapted, levels, stated_s, strict=True):
        change = level - (wait_s < stated) if level < 0.5 else (wait_s > stated) - (1 - level)
        moved.append(min(1 - EDGE, max(EDGE, now + STEP * change)))
    return tuple(moved)
