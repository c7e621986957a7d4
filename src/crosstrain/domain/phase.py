"""An inner phase: what a trainer is asked to do, and what it says it did.

Windows are trained in the order of `blocks`, consecutive inside a block. Every window belongs to exactly one optimiser
step; the last step may be short. A phase that is stopped ends at a block boundary, with a short step if need be, so that
what it contributes is a prefix of whole blocks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from crosstrain.domain.ids import Generation, Token

NO_LEASE = Token(0)
"""Token of phases outside a run; leases have positive tokens."""


@dataclass(frozen=True, slots=True)
class WindowRange:
    """`count` consecutive windows of the corpus from window number `first`: the content of one block."""

    first: int
    count: int


@dataclass(frozen=True, slots=True)
class PhasePlan:
    """One inner phase.

    Attributes:
        generation: base generation of the weights the trainer holds.
        first_step: global step of the first optimiser step.
        windows_per_step: windows of a full optimiser step, over all ranks and accumulations.
        learning_rates: one value per optimiser step, of the main parameter group; other groups keep their ratio to it.
        blocks: in the order of training.
        token: the lease they are trained under, for the record of trained windows.
        ahead: the phase begins at the weights held, whatever they were trained on before: its contribution is the progress from
            here (`round.overlap`).
    """

    generation: Generation
    first_step: int
    windows_per_step: int
    learning_rates: tuple[float, ...]
    blocks: tuple[WindowRange, ...]
    token: Token = NO_LEASE
    ahead: bool = False

    @property
    def windows(self) -> int:
        return sum(block.count for block in self.blocks)


@dataclass(frozen=True, slots=True)
class PhaseProgress:
    """What rank 0 reports between two optimiser steps."""

    steps: int
    windows: int
    blocks: int
    loss: float | None = None


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """What was done.

    Attributes:
        steps: optimiser steps taken.
        windows: windows trained.
        tokens: labels that counted in the loss, the weight of the contribution.
        blocks: whole blocks trained, a prefix of the plan's.
        windows_digest: `digest_windows` of the window numbers that the ranks fed to the model.
        losses: mean loss per token of every step.
        grad_norms: norm of the gradient of every step, before clipping.
        seconds: wall time of the steps.
        stopped: whether the phase was asked to stop before its end.
    """

    steps: int
    windows: int
    tokens: int
    blocks: int
    windows_digest: str
    losses: tuple[float, ...] = field(default=())
    grad_norms: tuple[float, ...] = field(default=())
    seconds: float = 0.0
    stopped: bool = False


def step_count(windows: int, windows_per_step: int) -> int:
    """Optimiser steps that `windows` windows take; the last one may be short."""
    return -(-windows // windows_per_step)


def next_step_windows(done: int, plan: PhasePlan, stopping: bool) -> int:
    """How many windows the next optimiser step takes; 0 ends the phase.

    A phase that is stopping takes no more than what completes the block it is in.
    """
    if not stopping:
        return min(plan.windows_per_step, plan.windows - done)
    end = 0
    for block in plan.blocks:
        if end >= done:
            break
        end += block.count
    return min(plan.windows_per_step, end - done) if end > done else 0


def blocks_completed(done: int, blocks: Iterable[WindowRange]) -> int:
    """Whole blocks among the first `done` windows."""
    complete = 0
    for block in blocks:
        done -= block.count
        if done < 0:
            break
        complete += 1
    return complete


def window_numbers(blocks: Iterable[WindowRange]) -> Iterator[int]:
    """The window numbers of blocks in the order of training."""
    for block in blocks:
        yield from range(block.first, block.first + block.count)


_MODULUS = 1 << 128


def sum_windows(windows: Iterable[int]) -> int:
    """Sum modulo 2^128 of BLAKE2b-128 over the window numbers (as 8 little-endian bytes).

    An additive multiset hash: ranks sum their own windows and the sums add up, whatever their order or layout, and a
    window trained twice changes it.
    """
    total = 0
    for window in windows:
        total += int.from_bytes(hashlib.blake2b(window.to_bytes(8, "little"), digest_size=16).digest(), "little")
    return total % _MODULUS


def join_digests(first: str, second: str) -> str:
    """Digest of two multisets of windows together.

    Raises:
        ValueError: one is no digest of `digest_windows`.
    """
    (count_a, sum_a), (count_b, sum_b) = first.split(":"), second.split(":")
    return digest_windows(int(count_a) + int(count_b), int(sum_a, 16) + int(sum_b, 16))


def digest_windows(count: int, total: int) -> str:
    """Digest of a multiset of windows from its size and `sum_windows`."""
    return f"{count}:{total % _MODULUS:032x}"


def join_results(first: PhaseResult, second: PhaseResult) -> PhaseResult:
    """What two consecutive segments of one phase did together."""
    return PhaseResult(
        steps=first.steps + second.steps,
        windows=first.windows + second.windows,
        tokens=first.tokens + second.tokens,
        blocks=first.blocks + second.blocks,
        windows_digest=join_digests(first.windows_digest, second.windows_digest),
        losses=first.losses + second.losses,
        grad_norms=first.grad_norms + second.grad_norms,
        seconds=first.seconds + second.seconds,
        stopped=second.stopped,
    )


NOTHING = PhaseResult(0, 0, 0, 0, digest_windows(0, 0))
"""The result of a phase that has not begun."""
