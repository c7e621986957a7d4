"""The ranks of one site: their process group, the few collectives of the trainer, and the channel for commands.

Commands do not travel in a collective: a rank that waits in one is bound to the group's timeout, and a site waits for
hours. They wait on a key of a store that rank 0 holds, and learn from its loss that rank 0 is gone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from crosstrain.domain.timeouts import COLLECTIVE_S, NEXT_COMMAND_S
from crosstrain.errors import IntegrityError
from crosstrain.site.titan.shim import device_type

_COLLECTIVE_TIMEOUT = timedelta(seconds=COLLECTIVE_S)
_COMMAND_TIMEOUT = timedelta(seconds=NEXT_COMMAND_S)
_LIMB_BITS = 32

T = TypeVar("T")


def join() -> None:
    """Makes the default process group, once per process: of the ranks that torchrun started, or of this process alone.

    Collectives over CPU tensors go through gloo everywhere, so that decisions and checks never touch a GPU's queue.
    """
    if dist.is_initialized():
        return
    backend = "gloo" if device_type() == "cpu" else f"cpu:gloo,{device_type()}:nccl"
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group(backend, timeout=_COLLECTIVE_TIMEOUT)
        return
    # torchtitan reads these even when there is one rank and the group exists.
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}.items():
        os.environ.setdefault(name, value)
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, timeout=_COLLECTIVE_TIMEOUT)


def rank() -> int:
    return int(dist.get_rank())


def world() -> int:
    return int(dist.get_world_size())


def agree(decision: bool) -> bool:
    """Rank 0's decision, on all ranks."""
    if world() == 1:
        return decision
    flag = torch.tensor([int(decision)])
    dist.broadcast(flag, 0)
    return bool(flag.item())


def barrier() -> None:
    """Returns when all ranks have come here."""
    agree(True)
    add(0.0)


def add(value: float) -> float:
    """The sum over the ranks, in double precision."""
    if world() == 1:
        return value
    total = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(total)
    return float(total.item())


def add_wide(value: int) -> int:
    """The sum over the ranks of integers 0 <= value < 2^128, exact."""
    if world() == 1:
        return value
    limbs = torch.tensor([value >> shift & (1 << _LIMB_BITS) - 1 for shift in range(0, 128, _LIMB_BITS)])
    dist.all_reduce(limbs)
    return sum(int(limb) << _LIMB_BITS * place for place, limb in enumerate(limbs.tolist()))


def on_rank_0(action: Callable[[], T]) -> T | None:
    """Runs `action` on rank 0 alone; what it raises there, is raised on all ranks.

    Returns:
        What `action` returned, on rank 0; None on the others.

    Raises:
        Exception: what `action` raised, on rank 0; IntegrityError with its text on the others, which have no files and
            only have to leave the call as rank 0 does.
    """
    result: T | None = None
    failure: Exception | None = None
    if rank() == 0:
        try:
            result = action()
        except Exception as error:  # noqa: BLE001 - raised again below, once the other ranks know
            failure = error
    if agree(failure is not None):
        raise failure or IntegrityError("Rank 0 could not do its part; see its own message.")
    return result


class CommandChannel:
    """How rank 0 tells the others what to do next, as text.

    To be made by all ranks together, at a moment when none of them waits for long.
    """

    def __init__(self) -> None:
        host = os.environ.get("MASTER_ADDR", "127.0.0.1")
        self._number = 0
        self._store: Any = None
        if world() == 1:
            return
        if rank() == 0:
            self._store = dist.TCPStore(host, 0, None, True, _COMMAND_TIMEOUT, wait_for_workers=False)
        port = torch.tensor([self._store.port if self._store else 0])
        dist.broadcast(port, 0)
        if rank() != 0:
            self._store = dist.TCPStore(host, int(port.item()), None, False, _COMMAND_TIMEOUT)

    def announce(self, command: str) -> None:
        """Rank 0: gives the next command to the other ranks."""
        if self._store is not None:
            self._store.set(self._key(), command)

    def next(self) -> str:
        """Other ranks: waits for the next command.

        Raises:
            RuntimeError: rank 0 is gone.
        """
        return str(self._store.get(self._key()).decode())

    def close(self) -> None:
        """All ranks together: leaves the process group; the last thing that a process does with it."""
        barrier()
        dist.destroy_process_group()

    def _key(self) -> str:
        self._number += 1
        return f"command-{self._number}"
