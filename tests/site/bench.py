"""A tiny Qwen3, tokens that can be learnt, plans, and trainers; torch is imported when a trainer that needs it is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from crosstrain.clock import SystemClock, pause
from crosstrain.config import InnerSection, ModelSection
from crosstrain.domain.ids import Generation
from crosstrain.domain.phase import PhasePlan, WindowRange, step_count
from crosstrain.site.counting import CountingTrainer
from crosstrain.site.settings import TrainerSettings
from crosstrain.site.trainer import Trainer
from crosstrain.storage.weights_file import Entry, WeightsWriter

SEQ_LEN = 16
MODEL = ModelSection(
    vocab_size=64,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=64,
)


def make_settings(directory: Path) -> TrainerSettings:
    """Of a trainer with micro batches of two windows; 600 windows to train on, 40 held out."""
    steps = np.random.default_rng(0).integers(1, 4, 640 * SEQ_LEN + 2)
    tokens = (np.cumsum(steps) % 61).astype("<u2")
    tokens[: 600 * SEQ_LEN + 1].tofile(directory / "train.bin")
    tokens[600 * SEQ_LEN + 1 :].tofile(directory / "heldout.bin")
    return TrainerSettings(
        model=MODEL,
        inner=InnerSection(lr=3e-3),
        seq_len=SEQ_LEN,
        micro_batch=2,
        train_tokens=directory / "train.bin",
        heldout_tokens=directory / "heldout.bin",
        token_dtype="uint16",
        work_dir=directory / "work",
    )


def plan(
    *blocks: tuple[int, int], per_step: int = 4, first_step: int = 0, generation: int = 0, lr: float = 3e-3
) -> PhasePlan:
    """A plan for blocks (first window, windows) with the learning rate falling by a tenth every step."""
    ranges = tuple(WindowRange(first, count) for first, count in blocks)
    steps = step_count(sum(block.count for block in ranges), per_step)
    rates = tuple(lr * 0.9**step for step in range(steps))
    return PhasePlan(Generation(generation), first_step, per_step, rates, ranges)


def write_initial(trainer: Trainer, path: Path, seed: int = 1) -> Path:
    entries = [Entry(spec.name, "F32", spec.shape) for spec in trainer.manifest]
    with WeightsWriter(path, entries) as writer:
        trainer.initialise(writer.write, seed)
    return path


def weights_of(trainer: Trainer) -> dict[str, Any]:
    """A copy of the weights held, by name."""
    held: dict[str, Any] = {}
    trainer.export(lambda name, tensor: held.__setitem__(name, tensor.copy()))
    return held


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether two sets of weights are equal bit for bit."""
    return list(first) == list(second) and all(first[name].tobytes() == second[name].tobytes() for name in first)


T = TypeVar("T")


@dataclass(frozen=True)
class Bench:
    """A trainer under test; `reset` brings it to generation 0 with a fresh inner optimiser."""

    trainer: Trainer
    initial: Path
    reset: Callable[[], None]


def build(engine: str, settings: TrainerSettings) -> Trainer:
    if engine == "counting":
        return CountingTrainer(settings.seq_len, settings.window_log)
    from crosstrain.site.titan.trainer import TitanTrainer

    return TitanTrainer(settings)


def until(condition: Callable[[], T], patience: float = 60.0) -> T:
    """The first true value of `condition`; fails when it takes longer than `patience` seconds."""
    end = SystemClock().perf() + patience
    while not (value := condition()):
        assert SystemClock().perf() < end, f"waited {patience} s in vain"
        pause(0.01)
    return value


def running(pid: int) -> bool:
    """Whether the process is there and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def descendants(pid: int) -> list[int]:
    """Process ids below `pid`."""
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            found += [child, *descendants(child)]
    return found
