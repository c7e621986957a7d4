"""One training from generation 0 in one process, with the production export, merge and outer step."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from packing import Packing

from crosstrain.assembly import RunFiles, load_corpus
from crosstrain.config import WireSection
from crosstrain.coordinator import publisher
from crosstrain.demo.prepare import NAMES
from crosstrain.domain.block import Corpus
from crosstrain.domain.generation import GenerationRecord
from crosstrain.domain.ids import Digest, Generation, Instant, Token
from crosstrain.domain.phase import PhasePlan, PhaseProgress
from crosstrain.domain.schedule import LearningRateSchedule
from crosstrain.outer.encoding import widen
from crosstrain.outer.presets import hyperparameters, outer_rule
from crosstrain.site.commands import perform
from crosstrain.site.order import BlockOrder
from crosstrain.site.trainer import Trainer
from crosstrain.storage.delta_file import ELEMENT_BYTES, Codec, DeltaFile
from crosstrain.storage.deltas import Deltas
from crosstrain.storage.object_store import LocalObjectStore
from crosstrain.storage.weights_file import WeightsFile

SITES = 3


def never(_: PhaseProgress) -> bool:
    return False


@dataclass
class Arm:
    """One training from generation 0, with the files of all its rounds in `directory`.

    Attributes:
        sizes: bytes of each delta.
        errors: of each delta, relative.
        deltas, weights: what packing makes of the deltas, and of what sites download.
    """

    trainer: Trainer
    files: RunFiles
    directory: Path
    codec: Codec
    feedback: bool
    sizes: list[int] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    deltas: Packing = field(default_factory=Packing)
    weights: Packing = field(default_factory=Packing)

    def __post_init__(self) -> None:
        config, manifest = self.files.config, load_corpus(self.files)
        self.directory.mkdir(parents=True)
        self._objects = LocalObjectStore(self.directory / "objects")
        self._corpus = Corpus(manifest.train.windows, config.data.block_windows)
        self._order = BlockOrder(self._corpus, config.run.seed)
        self._per_step = config.site_named(NAMES[0]).windows_per_step
        inner = config.inner
        self._rates = LearningRateSchedule(inner.lr, inner.warmup_steps, config.total_steps, inner.min_lr_factor)
        self._fresh = self.directory / "fresh"
        self._position = 0

    def run(self) -> float:
        """The held-out loss at the end."""
        record = self._generation_0()
        config = self.files.config
        rule = outer_rule(config.outer, config.run.preset, config.inner.optimizer)
        for _ in range(config.run.rounds):
            phases = [self._phase(number, record) for number in range(SITES)]
            deltas, tokens = tuple(delta for delta, _ in phases), tuple(count for _, count in phases)
            hyper = hyperparameters(rule, record.global_step, config.total_steps, SITES)
            wire = WireSection(weights=config.wire.weights, delta=self.codec)
            recipe = publisher.Recipe(record, deltas, tokens, hyper, wire)
            opened = Deltas(self._objects, self.codec, "none", self.directory / "scratch")
            made = publisher.merge(self._objects, opened, recipe, self.directory / "work")
            self.weights.add(made["weights"].path, 2)
            record = self._next(record, {name: self._objects.adopt(*file) for name, file in made.items()}, tokens)
        self.trainer.load(self._objects.path(record.weights), record.number)
        nll, counted = self.trainer.evaluate(config.heldout.windows)
        return nll / counted

    def _generation_0(self) -> GenerationRecord:
        path = self.directory / "initial"
        seed = self.files.config.run.seed
        perform(self.trainer, {"op": "initialise", "seed": seed, "path": str(path)}, never, True)
        master = self._objects.adopt(path)
        return GenerationRecord(Generation(0), None, master, master, None, 0, 0, None, None, 0, Instant(0))

    def _next(self, record: GenerationRecord, made: dict[str, Digest], tokens: tuple[int, ...]) -> GenerationRecord:
        number, steps = Generation(record.number + 1), record.global_step + self.files.config.inner.steps
        weights, master = made.get("weights", made["master"]), made["master"]
        total = record.tokens + sum(tokens)
        return GenerationRecord(
            number, record.number, weights, master, made["momentum"], steps, total, None, None, SITES, Instant(0)
        )

    def _phase(self, site: int, record: GenerationRecord) -> tuple[Digest, int]:
        """Trains one site's blocks from the newest generation: its delta, and the tokens in it."""
        saved = self.directory / f"site-{site}"
        newest = saved / str(record.number - 1)
        self.trainer.restore(newest if newest.exists() else initial_state(self.trainer, self._fresh))
        base = self._objects.path(record.weights)
        self.trainer.load(base, record.number)
        result = self.trainer.run(self._plan(record), never)
        self.trainer.save(saved / str(record.number))
        path, before = self.directory / f"delta-{site}", saved / f"residual-{record.number - 1}"
        command = {"op": "export", "path": str(path), "base": str(base), "codec": self.codec}
        if self.feedback:
            after = str(saved / f"residual-{record.number}")
            command["residual"] = {"before": str(before) if before.exists() else None, "after": after}  # type: ignore[assignment]
        perform(self.trainer, command, never, True)
        self.sizes.append(path.stat().st_size)
        self.errors.append(self._error(path, base))
        self.deltas.add(path, ELEMENT_BYTES[self.codec])
        return self._objects.adopt(path), result.tokens

    def _plan(self, record: GenerationRecord) -> PhasePlan:
        steps = self.files.config.inner.steps
        blocks = -(-steps * self._per_step // self.files.config.data.block_windows)
        spans = []
        for _ in range(blocks):
            epoch, position = divmod(self._position, self._corpus.blocks)
            spans.append((epoch, position, position + 1))
            self._position += 1
        windows = self._order.windows(spans)
        taken = -(-sum(block.count for block in windows) // self._per_step)
        rates = self._rates.values(record.global_step, taken)
        return PhasePlan(record.number, record.global_step, self._per_step, rates, windows, Token(1))

    def _error(self, path: Path, base: Path) -> float:
        """How far the delta sent is from the one learnt, relative to the latter."""
        apart = whole = 0.0
        with DeltaFile(path, self.codec) as delta, WeightsFile(base) as weights:

            def compare(name: str, tensor: np.ndarray) -> None:
                nonlocal apart, whole
                learnt = (tensor - weights.array(name).astype(np.float32)).reshape(-1)
                sent = np.empty(learnt.size, np.float32)
                held = delta.tensor(name)
                widen(held if isinstance(held, tuple) else held.reshape(-1), sent)
                apart += float(np.square(sent - learnt, dtype=np.float64).sum())
                whole += float(np.square(learnt, dtype=np.float64).sum())

            self.trainer.export(compare)
        return (apart / whole) ** 0.5


def initial_state(trainer: Trainer, directory: Path) -> Path:
    """The saved state before any training; of the trainer's first arm, and the same for all."""
    shared = directory.parent.parent / "fresh"
    if not shared.exists():
        trainer.save(shared)
    return shared
