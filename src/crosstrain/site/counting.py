"""A trainer without a model and without torch: the oracle of the Trainer protocol.

Two small tensors are pulled, with momentum, towards a target made from the numbers of the windows trained. So weights, loss
and inner state depend on every window, on the order of the steps and on the learning rates, as a model's would.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crosstrain.clock import pause
from crosstrain.domain.ids import Generation
from crosstrain.domain.phase import PhasePlan, PhaseProgress, PhaseResult, sum_windows
from crosstrain.errors import Diverged, IntegrityError
from crosstrain.site import saved
from crosstrain.site.phases import check_plan, drive, phase_steps
from crosstrain.site.trainer import Position, Sink, TensorSpec, Watch
from crosstrain.site.window_log import WindowLog
from crosstrain.storage.weights_file import WeightsFile

_MANIFEST = (TensorSpec("count.matrix", (4, 3)), TensorSpec("count.vector", (5,)))
_SIZE = 17
_MOMENTUM = 0.9
_HELDOUT = 1 << 40
"""Held-out window i has the target of this number + i: far from every window of training."""

Vector = npt.NDArray[np.float64]
Weights = npt.NDArray[np.float32]


class CountingTrainer:
    """Implements `Trainer` on one rank; the held-out corpus is endless.

    Args:
        seq_len: tokens that a window counts for.
        window_log: as `TrainerSettings.window_log`.
        step_s: how long an optimiser step is made to last.
    """

    def __init__(self, seq_len: int, window_log: Path | None = None, step_s: float = 0.0) -> None:
        self._step_s = step_s
        self._seq_len = seq_len
        self._log = WindowLog(window_log, 0)
        self._weights = np.zeros(_SIZE, np.float32)
        self._velocity = np.zeros(_SIZE)
        self._position = Position(None, 0, "fresh")
        self._diverged = False

    @property
    def manifest(self) -> tuple[TensorSpec, ...]:
        return _MANIFEST

    @property
    def position(self) -> Position:
        return self._position

    def initialise(self, sink: Sink, seed: int) -> None:
        _give(np.random.default_rng(seed).standard_normal(_SIZE).astype(np.float32), sink)

    def load(self, weights: Path, generation: Generation, moved: bool = False, fresh: bool = False) -> None:
        with WeightsFile(weights) as file:
            found = {entry.name: entry.shape for entry in file.entries}
            if found != {spec.name: spec.shape for spec in _MANIFEST}:
                raise IntegrityError(f"{weights}: expected the tensors {_MANIFEST}, found {found}.")
            flat = np.concatenate([file.array(spec.name).astype(np.float32).ravel() for spec in _MANIFEST])
        self._weights = flat
        if self._diverged or fresh:
            self._velocity = np.zeros(_SIZE)
        inner = "fresh" if self._diverged or fresh else self._position.inner_state
        self._position = Position(generation, self._position.global_step, inner)
        self._diverged = False
        (self._log.moved if moved else self._log.loaded)(self._position)

    def run(self, plan: PhasePlan, watch: Watch) -> PhaseResult:
        return drive(self.begin(plan), watch)

    def begin(self, plan: PhasePlan) -> Generator[PhaseProgress, bool, PhaseResult]:
        """The steps of a phase one at a time, for a simulation that takes them on its own clock."""
        check_plan(plan, self._position, self._diverged)
        self._log.begun(plan)
        fed: list[int] = []

        def step(index: int, windows: Sequence[int]) -> tuple[float, float]:
            fed.extend(windows)
            return self._step(plan, index, windows)

        return phase_steps(plan, self._seq_len, step, lambda: sum_windows(fed))

    def _step(self, plan: PhasePlan, index: int, windows: Sequence[int]) -> tuple[float, float]:
        step = plan.first_step + index
        self._log.step(plan, step, windows)
        if self._step_s:
            pause(self._step_s)
        apart = self._weights - np.stack([_target(window) for window in windows])
        gradient = apart.mean(axis=0)
        loss, norm = 0.5 * float((apart**2).sum(axis=1).mean()), float(np.linalg.norm(gradient))
        if not np.isfinite([loss, norm]).all():
            self._diverged = True
            raise Diverged(f"Step {step}: loss {loss}, gradient norm {norm}.", "load a generation, or restore")
        self._velocity = _MOMENTUM * self._velocity + gradient
        with np.errstate(over="ignore"):  # noticed by the next step, as with a model
            self._weights = (self._weights - plan.learning_rates[index] * self._velocity).astype(np.float32)
        self._position = Position(plan.generation, step + 1, "restored")
        return loss, norm

    def export(self, sink: Sink) -> None:
        _give(self._weights, sink)

    def evaluate(self, windows: int) -> tuple[float, int]:
        apart = [self._weights - _target(_HELDOUT + number) for number in range(windows)]
        return 0.5 * self._seq_len * float(sum((each**2).sum() for each in apart)), windows * self._seq_len

    def generate(self, prompt: list[int], tokens: int, temperature: float, seed: int) -> list[int]:
        draw = np.random.default_rng(seed).random(tokens) if temperature else np.zeros(tokens)
        base = int(1e3 * np.abs(self._weights).sum()) + sum(prompt)
        return [(base + index + int(temperature * 1e3 * draw[index])) % 256 for index in range(tokens)]

    def save(self, directory: Path) -> None:
        partial = saved.begin(directory)
        np.save(partial / "state.npy", np.stack([self._weights, self._velocity]))
        generation, step, inner = self._position.generation, self._position.global_step, self._position.inner_state
        saved.commit(directory, {"generation": generation, "global_step": step, "inner_state": inner})

    def restore(self, directory: Path) -> Position:
        record = saved.read(directory)
        try:
            weights, velocity = np.load(directory / "state.npy")
            self._position = Position(record["generation"], record["global_step"], record["inner_state"])
        except (OSError, ValueError, KeyError) as error:
            raise IntegrityError(f"{directory} is not a state of the counting trainer: {error}.") from error
        self._weights, self._velocity = weights.astype(np.float32), velocity
        self._diverged = False
        self._log.restored(self._position)
        return self._position

    def close(self) -> None:
        """Nothing is held."""


def _target(window: int) -> Vector:
    """Where window `window` pulls the weights; between -1 and 1."""
    return np.sin((window % 1009 + 1) * np.arange(1, _SIZE + 1, dtype=np.float64))


def _give(flat: Weights, sink: Sink) -> None:
    begin = 0
    for spec in _MANIFEST:
        size = int(np.prod(spec.shape))
        sink(spec.name, flat[begin : begin + size].reshape(spec.shape))
        begin += size
