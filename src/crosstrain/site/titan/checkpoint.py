"""Saved states of a trainer: weights and inner moments by native name, as torch's distributed checkpoint.

Its metadata are a pickle, so only states that this site wrote itself are ever read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.tensor import DTensor
from torchtitan.components.optimizer.utils import init_optim_state

from crosstrain.errors import EnvironmentFault, IntegrityError
from crosstrain.site import saved
from crosstrain.site.titan import ranks
from crosstrain.site.titan.weights import Weights
from crosstrain.site.trainer import Position


def save(directory: Path, weights: Weights, optimizers: Any, position: Position) -> None:
    """Collective; see `Trainer.save`.

    Raises:
        EnvironmentFault: the directory exists or cannot be written.
    """
    inner = position.inner_state == "restored"
    tensors = _tensors(weights, optimizers, inner)
    ranks.on_rank_0(lambda: saved.begin(directory))
    partial = saved.partial_of(directory)
    try:
        dcp.save(tensors, storage_writer=dcp.FileSystemWriter(partial))
    except CheckpointException as error:
        raise EnvironmentFault(f"The state cannot be written to {partial}: {error}.", "check the disk") from error
    record = {
        "generation": position.generation,
        "global_step": position.global_step,
        "inner_state": position.inner_state,
        "moments": _square_sum(optimizers) if inner else 0.0,
    }
    ranks.on_rank_0(lambda: saved.commit(directory, record))


def restore(
    directory: Path, weights: Weights, optimizers: Any, held: Position
) -> tuple[Position, IntegrityError | None]:
    """Collective; see `Trainer.restore`.

    Args:
        held: the position of what is held now.

    Returns:
        The position restored, and None. If the files turned out to be damaged while they were read into place, the error
        to raise: what is held is then not to be used.

    Raises:
        IntegrityError: incomplete, or of another model or inner optimiser; nothing was changed.
    """
    # Every rank reads the small records itself and comes to the same conclusion.
    record = saved.read(directory)
    inner = record.get("inner_state") == "restored"
    try:
        tensors = _tensors(weights, optimizers, inner)
        _require_same_tensors(directory, tensors)
        position = Position(record["generation"], record["global_step"], record["inner_state"])
    except KeyError as error:
        raise IntegrityError(f"{directory} is not a state of this trainer: {error} is missing.") from error
    except IntegrityError:
        if held.inner_state == "fresh":
            forget(optimizers)
        raise
    return position, _fill(directory, tensors, optimizers, record["moments"])


def _fill(directory: Path, tensors: dict[str, Any], optimizers: Any, moments: float) -> IntegrityError | None:
    try:
        dcp.load(tensors, storage_reader=dcp.FileSystemReader(directory))
    except CheckpointException as error:
        return IntegrityError(f"{directory} cannot be read: {error}.", "use an earlier one")
    if moments == 0.0:
        forget(optimizers)
        return None
    found = _square_sum(optimizers)
    if abs(found - moments) <= 1e-6 * moments:
        return None
    return IntegrityError(
        f"{directory}: expected inner moments with square sum {moments}, found {found}.", "use an earlier one"
    )


def forget(optimizers: Any) -> None:
    """Makes the inner optimiser fresh."""
    for optimizer in optimizers:
        optimizer.state.clear()
        # torchtitan makes no room for moments (`_inner_tensors`) while there are gradients of the last step.
        optimizer.zero_grad(set_to_none=True)


def _tensors(weights: Weights, optimizers: Any, inner: bool) -> dict[str, Any]:
    """Live tensors by name; `load` writes into them, so neither copies nor state-dict hooks are involved."""
    tensors = {f"model.{name}": parameter.detach() for name, parameter in weights.parameters().items()}
    if inner:
        tensors.update(_inner_tensors(optimizers))
    return tensors


def _inner_tensors(optimizers: Any) -> Iterator[tuple[str, Any]]:
    for optimizer in optimizers:
        # Moments come into being with the first step; torchtitan takes one without effect to make room for them.
        init_optim_state(optimizer)
        for group in optimizer.param_groups:
            for name, parameter in zip(group["param_names"], group["params"], strict=True):
                for key, value in optimizer.state[parameter].items():
                    yield f"inner.{name}.{key}", value


def _require_same_tensors(directory: Path, tensors: dict[str, Any]) -> None:
    found = dcp.FileSystemReader(directory).read_metadata().state_dict_metadata
    for name, tensor in tensors.items():
        size = getattr(found.get(name), "size", None)
        if size != tensor.shape:
            raise IntegrityError(
                f"{directory}: expected {name} of shape {tuple(tensor.shape)}, found {size and tuple(size)}.",
                "the state is of another model or inner optimiser than RUN.toml describes",
            )
    if extra := found.keys() - tensors.keys():
        raise IntegrityError(f"{directory}: {min(extra)} belongs to another model or inner optimiser.", "see RUN.toml")


def _square_sum(optimizers: Any) -> float:
    """Over all sharded moments, of all ranks: proof that they are there and the ones that were saved."""
    own = torch.zeros((), dtype=torch.float64)
    for _, value in _inner_tensors(optimizers):
        if isinstance(value, DTensor):
            own += value.to_local().double().square().sum().cpu()
    return ranks.add(float(own.item()))
