"""The Trainer protocol: what the rest of crosstrain may ask of whatever trains the model.

Implementations: `titan/` (torchtitan's Qwen3, the production engine) and `counting.py` (two small arrays and no torch, for
tests of the protocol and for simulation). One contract suite runs on both: `tests/site/test_trainer_contract.py`.

All methods are collective inside a site: every rank calls them in the same order. Only rank 0 has files, sinks and results;
other ranks get placeholders. Between calls ranks never wait in a collective.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from crosstrain.domain.ids import Generation
from crosstrain.domain.phase import PhasePlan, PhaseProgress, PhaseResult


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Name and shape of one tensor, in Hugging Face Qwen3 names; the weights held are float32."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """Where the weights held come from.

    Attributes:
        generation: the base generation, or None when nothing was loaded yet.
        global_step: inner steps behind these weights, in the run's count.
        inner_state: "fresh" or "restored"; whether the inner optimiser's moments come from earlier phases.
    """

    generation: Generation | None
    global_step: int
    inner_state: str


Watch = Callable[[PhaseProgress], bool]
"""Called on rank 0 before every optimiser step and once after the last; returns True to stop at the next block boundary."""

Sink = Callable[[str, npt.NDArray[np.float32]], None]
"""Takes one float32 tensor by name, in the order of the manifest; the array is valid during the call only."""


class Trainer(Protocol):
    """One model replica at a site."""

    @property
    def manifest(self) -> tuple[TensorSpec, ...]:
        """All tensors, in the fixed order of `export` and of the files that `load` reads."""
        ...

    @property
    def position(self) -> Position: ...

    def initialise(self, sink: Sink, seed: int) -> None:
        """Gives generation 0 of the run to `sink`, tensor by tensor: a function of the model section and `seed` alone,
        never of the number of ranks. Does not change the weights held."""
        ...

    def load(self, weights: Path, generation: Generation, moved: bool = False, fresh: bool = False) -> None:
        """Adopts the weights of a safetensors file (float32 or bfloat16) in place. The inner optimiser's state stays, unless the
        phase before diverged.

        Args:
            moved: they hold what the present phase has trained so far, for the record of trained windows.
            fresh: the inner optimiser's state goes as well.

        Raises:
            IntegrityError: a tensor is missing, unknown, or of another shape; names it. Nothing was changed.
        """
        ...

    def run(self, plan: PhasePlan, watch: Watch) -> PhaseResult:
        """Takes the plan's optimiser steps.

        Deterministic in (weights, optimiser state, plan) and independent of the number of ranks up to rounding.

        Raises:
            ValueError: plan.learning_rates and the plan's windows do not fit together. Nothing was trained.
            Diverged: a loss or gradient norm was not finite; `load` and `restore` are needed before the next `run`.
        """
        ...

    def export(self, sink: Sink) -> None:
        """Gives the float32 weights held to `sink`, one tensor at a time."""
        ...

    def evaluate(self, windows: int) -> tuple[float, int]:
        """(sum of negative log-likelihoods in nats, number of tokens) over the first `windows` held-out windows."""
        ...

    def generate(self, prompt: list[int], tokens: int, temperature: float, seed: int) -> list[int]:
        """`tokens` more token numbers after `prompt`; temperature 0 takes the most likely one."""
        ...

    def save(self, directory: Path) -> None:
        """Writes weights, inner optimiser state and position into a fresh directory; a reader sees all of it or nothing."""
        ...

    def restore(self, directory: Path) -> Position:
        """Takes up a saved state, also with another number of ranks.

        Raises:
            IntegrityError: the directory is incomplete or of another model.
        """
        ...

    def close(self) -> None: ...


Command = dict[str, Any]
"""A request to the trainer's process: {"op": NAME, ...}; see `worker.py`."""
