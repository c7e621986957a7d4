"""The components that torchtitan's Trainer is built from in place of its own.

torchtitan makes a component from its `Config`; a subclass that declares a `Config` of its own is all the registration that
there is. torchtitan is not followed by the type checker, hence the ignored subclassing of Any.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.components.optimizer import LRSchedulersContainer, OptimizersContainer, ParamGroupConfig
from torchtitan.components.tokenizer import BaseTokenizer

from crosstrain.config import InnerSection
from crosstrain.site.titan.muon import Muon


class NoTokenizer(BaseTokenizer):  # type: ignore[misc]
    """The corpus is tokenised already; Trainer builds a tokenizer all the same."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):  # type: ignore[misc]
        pass

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def encode(self, *_: Any, **__: Any) -> NoReturn:
        raise AssertionError("the corpus is tokenised already")

    def decode(self, *_: Any, **__: Any) -> NoReturn:
        raise AssertionError("the corpus is tokenised already")

    def get_vocab_size(self) -> NoReturn:
        raise AssertionError("the corpus is tokenised already")


class NoDataLoader(BaseDataLoader):  # type: ignore[misc]
    """Each optimiser step is handed its own batches; Trainer builds a loader all the same."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):  # type: ignore[misc]
        pass

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        pass


class LastStep(MetricsProcessor):  # type: ignore[misc]
    """Keeps the numbers of the last step; `Trainer.train_step` gives them to its metrics processor only.

    Attributes:
        loss: mean over the labels of the whole step, of all ranks.
        grad_norm: of the whole step, before clipping.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(MetricsProcessor.Config):  # type: ignore[misc]
        pass

    loss: float
    grad_norm: float

    def should_log(self, step: int) -> bool:  # noqa: ARG002
        return True

    def log(self, step: int, global_avg_loss: float, global_max_loss: float, grad_norm: float, **_: Any) -> None:  # noqa: ARG002
        self.loss, self.grad_norm = float(global_avg_loss), float(grad_norm)


class GivenRates(LRSchedulersContainer):  # type: ignore[misc]
    """Learning rates given as values: no schedule, so no schedule state that could disagree between sites."""

    @dataclass(kw_only=True, slots=True)
    class Config(LRSchedulersContainer.Config):  # type: ignore[misc]
        main_lr: float

        def build(self, *, optimizers: Any, training_steps: int) -> GivenRates:  # noqa: ARG002
            return GivenRates(optimizers, self.main_lr)

    def __init__(self, optimizers: Any, main_lr: float) -> None:
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        self._groups = [(group, group["lr"] / main_lr) for group in groups]

    def set(self, value: float) -> None:
        """Gives the main group's rate; the other groups keep their configured ratio to it."""
        for group, ratio in self._groups:
            group["lr"] = value * ratio

    def step(self) -> None:
        pass

    def get_metrics(self) -> dict[str, float]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        pass


class InnerOptimizers(OptimizersContainer):  # type: ignore[misc]
    """torchtitan's optimisers and Muon."""

    @dataclass(kw_only=True, slots=True)
    class Config(OptimizersContainer.Config):  # type: ignore[misc]
        pass

    @staticmethod
    def _resolve_optimizer_factory(name: str) -> Any:
        return Muon if name == "Muon" else OptimizersContainer._resolve_optimizer_factory(name)


_HIDDEN_MATRICES = r"^layers\..*\.(wq|wk|wv|wo|w1|w2|w3)\.weight$"


def inner_optimizer(inner: InnerSection) -> Any:
    """The parameter groups of `inner.optimizer`; fused where torch has it."""
    adam = {"betas": tuple(inner.betas), "eps": 1e-8, "weight_decay": inner.weight_decay}
    if inner.optimizer == "adamw":
        groups = [_group(r".*", "AdamW", lr=inner.lr, **adam)]
    else:
        groups = [
            _group(_HIDDEN_MATRICES, "Muon", lr=inner.lr, weight_decay=inner.weight_decay),
            _group(r".*", "AdamW", lr=inner.adam_lr, **adam),
        ]
    return InnerOptimizers.Config(param_groups=groups)


def _group(pattern: str, optimizer: str, **arguments: Any) -> Any:
    return ParamGroupConfig(pattern=pattern, optimizer_name=optimizer, optimizer_kwargs=arguments)
