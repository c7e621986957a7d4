"""The inner learning rate as a function of the global step, so that a joiner or a restart cannot disagree about it."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LearningRateSchedule:
    """Linear warm-up, then a cosine to `min_factor` x peak at `total_steps`, constant afterwards.

    Attributes:
        peak: learning rate at the end of the warm-up.
        warmup_steps: the first step after 0 steps has peak / warmup_steps.
        total_steps: the horizon.
        min_factor: fraction of the peak at and beyond the horizon.
    """

    peak: float
    warmup_steps: int
    total_steps: int
    min_factor: float

    def at(self, step: int) -> float:
        """Learning rate of the optimiser step taken after `step` global steps."""
        if step < self.warmup_steps:
            return self.peak * (step + 1) / self.warmup_steps
        progress = min(1.0, (step - self.warmup_steps) / max(1, self.total_steps - self.warmup_steps))
        return self.peak * (self.min_factor + (1 - self.min_factor) * 0.5 * (1 + math.cos(math.pi * progress)))

    def values(self, first_step: int, steps: int) -> tuple[float, ...]:
        """Learning rates of `steps` consecutive optimiser steps."""
        return tuple(self.at(first_step + i) for i in range(steps))
