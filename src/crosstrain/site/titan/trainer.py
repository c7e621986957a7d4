"""The Trainer protocol on torchtitan: its `Trainer.train_step`, driven one phase at a time."""

from __future__ import annotations

import gc
import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule
from torchtitan.components.checkpoint import CheckpointManager
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.config import DebugConfig, ParallelismConfig, TrainingConfig
from torchtitan.config.configs import CommConfig
from torchtitan.trainer import Trainer

from crosstrain.domain.ids import Generation
from crosstrain.domain.phase import PhasePlan, PhaseProgress, PhaseResult, sum_windows
from crosstrain.errors import Diverged
from crosstrain.site.phases import check_plan, drive, phase_steps
from crosstrain.site.settings import TrainerSettings
from crosstrain.site.titan import checkpoint, ranks, weights
from crosstrain.site.titan.data import TokenWindows, deal
from crosstrain.site.titan.inference import Inference
from crosstrain.site.titan.parts import GivenRates, LastStep, NoDataLoader, NoTokenizer, inner_optimizer
from crosstrain.site.titan.shim import device_type
from crosstrain.site.titan.spec import qwen3_spec
from crosstrain.site.trainer import Position, Sink, TensorSpec, Watch
from crosstrain.site.window_log import WindowLog


class TitanTrainer:
    """Implements `Trainer` on the ranks of one site; see `site/trainer.py` for what each method promises.

    The weights are those of torchtitan's own initialisation until the first `load`, and no phase is accepted before it.

    Attributes:
        inference: the model without its training.
    """

    def __init__(self, settings: TrainerSettings) -> None:
        torch.set_num_threads(settings.threads)
        ranks.join()
        flex = settings.model.attention == "flex"
        self._settings = settings
        self._train = TokenWindows(settings.train_tokens, settings.token_dtype, settings.seq_len, positions=flex)
        self._heldout: TokenWindows | None = None
        self._titan = _build(settings)
        model = self._titan.model_parts[0]
        self._weights = weights.Weights(
            model, qwen3_spec(settings.model).state_dict_adapter(self._titan.model_config, None)
        )
        self.inference = Inference(self._titan, settings.seq_len, flex)
        self._log = WindowLog(settings.window_log, ranks.rank())
        self._position = Position(None, 0, "fresh")
        self._unusable = False

    @property
    def manifest(self) -> tuple[TensorSpec, ...]:
        return self._weights.manifest

    @property
    def position(self) -> Position:
        return self._position

    def initialise(self, sink: Sink, seed: int) -> None:
        if ranks.rank() == 0:
            weights.initialise(self._settings.model, seed, sink)

    def load(self, weights: Path, generation: Generation, moved: bool = False, fresh: bool = False) -> None:
        self._weights.load(weights)
        inner = self._position.inner_state
        if self._unusable or (fresh and inner == "restored"):
            checkpoint.forget(self._titan.optimizers)
            inner = "fresh"
        self._position = Position(generation, self._position.global_step, inner)
        self._unusable = False
        (self._log.moved if moved else self._log.loaded)(self._position)

    def run(self, plan: PhasePlan, watch: Watch) -> PhaseResult:
        check_plan(plan, self._position, self._unusable)
        last = max((block.first + block.count for block in plan.blocks), default=0)
        if last > self._train.count:
            raise ValueError(f"expected windows below {self._train.count}, found {last - 1}")
        self._log.begun(plan)
        own_sum = 0

        def step(index: int, windows: Sequence[int]) -> tuple[float, float]:
            nonlocal own_sum
            shares = deal(windows, self._settings.micro_batch, ranks.world(), ranks.rank())
            own = [window for share in shares for window in share]
            self._log.step(plan, plan.first_step + index, own)
            own_sum += sum_windows(own)
            return self._step(plan, index, shares)

        def agreed(progress: PhaseProgress) -> bool:
            return ranks.agree(ranks.rank() == 0 and watch(progress))

        steps = phase_steps(plan, self._settings.seq_len, step, lambda: ranks.add_wide(own_sum % (1 << 128)))
        return drive(steps, agreed)

    def _step(self, plan: PhasePlan, index: int, shares: list[Sequence[int]]) -> tuple[float, float]:
        titan, step = self._titan, plan.first_step + index
        titan.gradient_accumulation_steps = len(shares)
        titan.lr_schedulers.set(plan.learning_rates[index])
        titan.step = step + 1
        titan.gc_handler.run(titan.step)
        self._unusable = True
        try:
            titan.train_step(self._batches(shares))
        except RuntimeError as error:
            # torchtitan has no type for it, and checks after the weights were changed.
            if "Loss is not finite" not in str(error):
                raise
            raise Diverged(f"Step {step}: {error}", "load a generation, or restore") from error
        loss, norm = titan.metrics_processor.loss, titan.metrics_processor.grad_norm
        if not math.isfinite(norm):
            raise Diverged(f"Step {step}: the gradient's norm is {norm}.", "load a generation, or restore")
        self._unusable = False
        self._position = Position(plan.generation, step + 1, "restored")
        return loss, norm

    def _batches(self, shares: list[Sequence[int]]) -> Iterator[Any]:
        return (self._train.batch(share, self._settings.micro_batch) for share in shares)

    def export(self, sink: Sink) -> None:
        self._weights.export(sink)

    def evaluate(self, windows: int) -> tuple[float, int]:
        if self._heldout is None:
            settings = self._settings
            flex = settings.model.attention == "flex"
            path, dtype = settings.heldout_tokens, settings.token_dtype
            self._heldout = TokenWindows(path, dtype, settings.seq_len, positions=flex)
        return self.inference.evaluate(self._heldout, windows, self._settings.micro_batch)

    def generate(self, prompt: list[int], tokens: int, temperature: float, seed: int) -> list[int]:
        return self.inference.generate(prompt, tokens, temperature, seed)

    def save(self, directory: Path) -> None:
        checkpoint.save(directory, self._weights, self._titan.optimizers, self._position)

    def restore(self, directory: Path) -> Position:
        optimizers = self._titan.optimizers
        self._position, damage = checkpoint.restore(directory, self._weights, optimizers, self._position)
        self._unusable = damage is not None
        if damage:
            raise damage
        self._log.restored(self._position)
        return self._position

    def close(self) -> None:
        self._titan.close()
        # torchtitan collects garbage itself between steps and switched Python's own collector off.
        gc.enable()


def _build(settings: TrainerSettings) -> Any:
    cpu = device_type() == "cpu"
    config = Trainer.Config(
        model_spec=qwen3_spec(settings.model),
        hf_assets_path="",
        dump_folder=str(settings.work_dir),
        tokenizer=NoTokenizer.Config(),
        dataloader=NoDataLoader.Config(),
        metrics=LastStep.Config(),
        optimizer=inner_optimizer(settings.inner),
        lr_scheduler=GivenRates.Config(main_lr=settings.inner.lr),
        training=TrainingConfig(
            local_batch_size=settings.micro_batch,
            seq_len=settings.seq_len,
            max_norm=settings.inner.clip_norm,
            mixed_precision_param=settings.inner.dtype,
            # Graphs keep gradients and inputs at fixed places, which loading and evaluating in between were not tried with.
            disable_cuda_graphs=True,
        ),
        # The default, spmd_types, needs torch 2.14 with more than one rank.
        parallelism=ParallelismConfig(spmd_backend="partial_dtensor"),
        checkpoint=CheckpointManager.Config(enable=False, initial_load_model_only=False),
        activation_checkpoint=None,
        # Otherwise a folder of traces is made.
        comm=CommConfig(trace_buf_size=0),
        debug=DebugConfig(seed=0),
        loss=CrossEntropyLoss.Config(global_vocab_size=settings.model.vocab_size),
    )
    with warnings.catch_warnings():
        # Sharded random numbers are wrong on the CPU; the weights made here are never trained (`weights.initialise`).
        warnings.filterwarnings(
            "ignore", r"DTensor (random operators|manual_seed\(\)) may not have complete support", UserWarning
        )
        titan = config.build()
    if cpu:
        # torchtitan's divide factor of 1 becomes ReduceOp.PREMUL_SUM, which gloo does not have.
        for module in titan.model_parts[0].modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)
    return titan
