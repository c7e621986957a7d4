"""Generations: the chain of published global models (G4), and when the run is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crosstrain.domain.ids import Digest, Generation, Instant
from crosstrain.domain.plural import counted
from crosstrain.domain.verdict import Verdict


@dataclass(frozen=True, slots=True)
class GenerationRecord:
    """A published global model.

    Attributes:
        weights: what sites train from (bf16 or float32).
        master: float32 weights.
        momentum: float32 outer momentum, None for generation 0.
        global_step: inner steps behind it; advances by the largest number of steps of any merged contribution.
        tokens: merged tokens so far.
        eta, beta: the outer step's values, None for generation 0.
        packed: `weights`, packed; None where they travel as they are.
    """

    number: Generation
    parent: Generation | None
    weights: Digest
    master: Digest
    momentum: Digest | None
    global_step: int
    tokens: int
    eta: float | None
    beta: float | None
    contributions: int
    published_at: Instant
    packed: Digest | None = None

    @property
    def download(self) -> Digest:
        """What sites fetch."""
        return self.packed or self.weights


def chain_problem(chain: Sequence[GenerationRecord]) -> str | None:
    """Why the records are no chain from generation 0 in steps of one, or None if they are."""
    for index, record in enumerate(chain):
        if record.number != index:
            return f"generation {index} is missing, found {record.number}"
        if record.parent != (index - 1 if index else None):
            return f"generation {index} names {record.parent} as its parent"
        if index and record.global_step < chain[index - 1].global_step:
            return f"generation {index} goes back from step {chain[index - 1].global_step} to {record.global_step}"
    return None


def is_finished(generation: Generation, rounds: int, merged_epochs: int, epochs: int) -> Verdict:
    """Whether the run is over."""
    if generation >= rounds:
        return Verdict(True, f"all {rounds} rounds are done" if rounds > 1 else "its only round is done")
    if merged_epochs >= epochs:
        return Verdict(True, f"the corpus was merged {counted(epochs, 'time')}")
    return Verdict(False, f"round {generation + 1} of {rounds}, epoch {merged_epochs + 1} of {epochs}")
