"""What every trainer checks before the first step of a phase."""

from __future__ import annotations

from crosstrain.domain.phase import PhasePlan, step_count
from crosstrain.errors import Diverged
from crosstrain.site.trainer import Position


def check_plan(plan: PhasePlan, position: Position, diverged: bool) -> None:
    """Refuses a phase that cannot be trained as it is written.

    Raises:
        ValueError: the plan contradicts itself, or is for weights that are not held.
        Diverged: the weights held are those of a phase that diverged.
    """
    if diverged:
        raise Diverged("The weights held are those of a phase that diverged.", "load a generation, or restore")
    if plan.windows_per_step < 1 or any(block.count < 1 or block.first < 0 for block in plan.blocks):
        raise ValueError(f"expected positive counts of windows, found {plan.windows_per_step} per step, {plan.blocks}")
    steps = step_count(plan.windows, plan.windows_per_step)
    if len(plan.learning_rates) != steps:
        raise ValueError(
            f"expected one learning rate for each of the {steps} steps of {plan.windows} windows, "
            f"found {len(plan.learning_rates)}"
        )
    if plan.generation != position.generation:
        raise ValueError(f"expected a plan for generation {position.generation}, found {plan.generation}")
