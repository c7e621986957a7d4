"""Weights in Hugging Face names, in and out, one tensor at a time: no second copy of the model is ever held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Replicate

from crosstrain.config import ModelSection
from crosstrain.errors import IntegrityError
from crosstrain.site.titan import ranks
from crosstrain.site.titan.spec import qwen3_spec
from crosstrain.site.trainer import Sink, TensorSpec
from crosstrain.storage.weights_file import WeightsFile


class Weights:
    """The parameters of a sharded model.

    Attributes:
        manifest: all tensors in Hugging Face names, in the order of the model's parameters; tied ones once.
    """

    def __init__(self, model: Any, adapter: Any) -> None:
        self._model = model
        self._names: list[tuple[str, str]] = []
        specs = []
        for native, parameter in self.parameters().items():
            (name,) = adapter.to_hf({native: parameter})
            self._names.append((name, native))
            specs.append(TensorSpec(name, tuple(parameter.shape)))
        self.manifest = tuple(specs)

    def parameters(self) -> dict[str, Any]:
        """The sharded parameters by native name.

        A forward pass without a backward pass leaves the last layers unsharded; what is written to such a parameter
        would be lost.
        """
        for module in self._model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
        return dict(self._model.named_parameters())

    def export(self, sink: Sink) -> None:
        """Collective; calls `sink` on rank 0, which must not raise."""
        with torch.no_grad():
            parameters = self.parameters()
            for name, native in self._names:
                full = _gather(parameters[native])
                if ranks.rank() == 0:
                    sink(name, full.detach().to("cpu", torch.float32).contiguous().numpy())

    def load(self, path: Path) -> None:
        """Collective; writes the parameters in place, so that the optimiser's state stays theirs.

        Raises:
            IntegrityError: the file does not hold exactly the manifest; nothing was changed.
        """
        file = ranks.on_rank_0(lambda: self._open(path))
        with torch.no_grad():
            parameters = self.parameters()
            for name, native in self._names:
                parameter = parameters[native]
                full = torch.empty(parameter.shape, dtype=parameter.dtype, device=parameter.device)
                if file is not None:
                    full.copy_(torch.from_numpy(np.asarray(file.array(name), dtype=np.float32)))
                _scatter(full, parameter)
        if file is not None:
            file.close()

    def _open(self, path: Path) -> WeightsFile:
        file = WeightsFile(path, private=True)
        found = {entry.name: entry.shape for entry in file.entries}
        for spec in self.manifest:
            shape = found.pop(spec.name, None)
            if shape != spec.shape:
                raise IntegrityError(
                    f"{path}: expected {spec.name} of shape {spec.shape}, found {shape or 'no such tensor'}.",
                    "the weights are of another model than RUN.toml describes",
                )
        if found:
            raise IntegrityError(f"{path}: {min(found)} is no tensor of this model.", "see [model] in RUN.toml")
        return file


def initialise(model: ModelSection, seed: int, sink: Sink) -> None:
    """Gives `sink` fresh weights, from one unsharded build on the CPU.

    Not collective, because torch's sharded initialisation gives every CPU rank the same random numbers.
    """
    # The RoPE tables of every layer would be made too, and are not wanted here.
    spec = qwen3_spec(model.model_copy(update={"max_position_embeddings": 1}))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        with torch.device("meta"):
            module = spec.model.build()
        module.to_empty(device="cpu")
        module.init_weights(buffer_device=None)
    adapter = spec.state_dict_adapter(spec.model, None)
    for native, parameter in module.named_parameters():
        (name,) = adapter.to_hf({native: parameter})
        sink(name, parameter.detach().numpy())


def _gather(parameter: Any) -> Any:
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter


def _scatter(full: Any, parameter: Any) -> None:
    """Copies rank 0's `full` into a parameter that may be sharded."""
    if ranks.world() > 1:
        dist.broadcast(full, 0)
    if isinstance(parameter, DTensor):
        mesh = parameter.device_mesh
        full = DTensor.from_local(full, mesh, [Replicate()] * mesh.ndim, run_check=False)
        full = full.redistribute(placements=parameter.placements)
    parameter.copy_(full)
