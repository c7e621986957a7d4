"""Lets torchtitan 0.3 run on a host without CUDA, and keeps its logging to warnings.

Each patch names the place in torchtitan that needs it; all were seen with torchtitan 0.3.0 and torch 2.13.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import sys
import types
import warnings
from typing import Any

import torch

from crosstrain.errors import EnvironmentFault

_SUPPORTED = "0.3."

_EXPECTED = (
    # We always make the process group ourselves (ranks.py), and torchtitan warns each time that it finds one.
    "torch.distributed is already initialized",
    # It looks for the model of a GPU to compute a utilisation that we do not report.
    "Error running lspci",
    "Peak flops undefined for",
)


def prepare() -> None:
    """Checks torchtitan's version and patches it; to be called before anything else imports torchtitan.

    Raises:
        EnvironmentFault: torchtitan is missing or of a series that the patches were not made for.
    """
    try:
        version = importlib.metadata.version("torchtitan")
    except importlib.metadata.PackageNotFoundError:
        raise EnvironmentFault("torchtitan is not installed.", "pip install 'crosstrain[train]'") from None
    if not version.startswith(_SUPPORTED):
        raise EnvironmentFault(
            f"Expected torchtitan {_SUPPORTED}x, found {version}.", "pip install 'crosstrain[train]' in a fresh venv"
        )
    _quiet_logging()
    _stub_triton_kernels()
    if not torch.accelerator.is_available():
        _use_cpu()
    _import_trainer()


def device_type() -> str:
    """Of the device that torchtitan trains on: "cpu", "cuda", ..."""
    from torchtitan.tools import utils

    return str(utils.device_type)


def _quiet_logging() -> None:
    # torchtitan logs through the root logger, so a level set there would be everyone's.
    from torchtitan.tools import logging as titan_logging

    quiet = logging.getLogger("torchtitan")
    quiet.setLevel(logging.WARNING)
    quiet.addFilter(lambda record: not any(part in record.getMessage() for part in _EXPECTED))
    titan_logging.logger = quiet


def _stub_triton_kernels() -> None:
    # models/common/token_dispatcher.py imports these kernels of a mixture-of-experts dispatcher unconditionally. triton
    # itself must not be stubbed: torch tests for it.
    name = "torchtitan.distributed.minimal_async_ep.kernels"
    if importlib.util.find_spec("triton") is None and name not in sys.modules:
        sys.modules[name] = _TritonKernels(name)


class _TritonKernels(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def missing(*_: object, **__: object) -> None:
            raise EnvironmentFault(f"{name} needs triton, which is not installed.", "pip install triton")

        return missing


def _use_cpu() -> None:
    # tools/utils.py falls back to "cuda"; its other modules copy the two names when they are imported.
    from torchtitan.tools import utils

    utils.device_type, utils.device_module = "cpu", _CpuDevice("crosstrain_cpu_device")


def _import_trainer() -> None:
    with warnings.catch_warnings():
        # torch's own modules that torchtitan pulls in are decorated with what torch itself deprecates.
        warnings.filterwarnings("ignore", "`torch.jit.script_method` is deprecated", DeprecationWarning)
        importlib.import_module("torchtitan.trainer")


class _CpuDevice(types.ModuleType):
    """torch.cpu with what components/metrics.py and distributed/utils.py call on a CUDA device module."""

    def current_device(self) -> int:
        return 0  # torch.cpu says "cpu", which BarrierOptions refuses

    def get_device_name(self, *_: object) -> str:
        return "cpu"

    def get_device_properties(self, *_: object) -> types.SimpleNamespace:
        return types.SimpleNamespace(name="cpu", total_memory=1 << 34)

    def memory_stats(self, *_: object) -> dict[str, int]:
        return {}

    def reset_peak_memory_stats(self, *_: object) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)
