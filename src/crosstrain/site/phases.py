"""What is the same for every trainer of a phase: the checks before it, and the order of its steps."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from crosstrain.clock import SystemClock
from crosstrain.domain.phase import (
    PhasePlan,
    PhaseProgress,
    PhaseResult,
    blocks_completed,
    digest_windows,
    next_step_windows,
    step_count,
    window_numbers,
)
from crosstrain.domain.plural import counted
from crosstrain.errors import Diverged
from crosstrain.site.trainer import Position, Watch

Step = Callable[[int, Sequence[int]], tuple[float, float]]
"""Takes optimiser step i of the phase on some windows; returns (mean loss per token, norm of the gradient)."""


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
            f"expected one learning rate for each of the {counted(steps, 'step')} of {counted(plan.windows, 'window')}, "
            f"found {len(plan.learning_rates)}"
        )
    if plan.generation != position.generation:
        raise ValueError(f"expected a plan for generation {position.generation}, found {plan.generation}")


def phase_steps(
    plan: PhasePlan, seq_len: int, step: Step, fed: Callable[[], int]
) -> Generator[PhaseProgress, bool, PhaseResult]:
    """The steps of a checked plan, one at a time.

    Yields the progress before every step and after the last; is sent whether to stop at the next block boundary; returns
    the result.

    Args:
        seq_len: labels of a window.
        fed: `sum_windows` of all windows that `step` fed to the model, on all ranks; asked once, after the last step.
    """
    started = SystemClock().perf()
    windows = list(window_numbers(plan.blocks))
    done, stopping = 0, False
    losses: list[float] = []
    norms: list[float] = []
    while True:
        blocks = blocks_completed(done, plan.blocks)
        stopping = (yield PhaseProgress(len(losses), done, blocks, losses[-1] if losses else None)) or stopping
        size = next_step_windows(done, plan, stopping)
        if size == 0:
            break
        loss, norm = step(len(losses), windows[done : done + size])
        losses.append(loss)
        norms.append(norm)
        done += size
    return PhaseResult(
        steps=len(losses),
        windows=done,
        tokens=done * seq_len,
        blocks=blocks,
        windows_digest=digest_windows(done, fed()),
        losses=tuple(losses),
        grad_norms=tuple(norms),
        seconds=SystemClock().perf() - started,
        stopped=stopping and done < plan.windows,
    )


def drive(steps: Generator[PhaseProgress, bool, PhaseResult], watch: Watch) -> PhaseResult:
    """Takes all steps; `watch` gives all ranks the same answer."""
    try:
        progress = next(steps)
        while True:
            progress = steps.send(watch(progress))
    except StopIteration as end:
        result: PhaseResult = end.value
        return result
