"""How fast the merge is, against what else the same machine could do in the same minute.

Three bf16 deltas -> token-weighted mean -> Nesterov -> float32 weights and momentum in place, bf16 copy out. Per
parameter that is 24 bytes of memory traffic at least, so the floor is a memory copy with 24 bytes of traffic. The four
variants run in shuffled order in every repetition and each ratio is the median over repetitions, because other
processes on the machine slow all four alike.

    merge_over_copy    our merge / the memory copy                      (bar: at most 5)
    torch_over_merge   torch.optim.SGD(nesterov, fused) / our merge     (bar: at least 1)
    numpy_over_merge   whole-array numpy, as FedAvgM servers write it / our merge
    peak_extra_mib     memory that our merge allocates beside its inputs and outputs
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable

import ml_dtypes
import numpy as np
import torch

from crosstrain.outer.outer_optimizer import OuterHyperparameters
from crosstrain.outer.weighted_merge import BF16, CHUNK, Merged, Workspace, merge_tensor, token_shares

TOKENS = (3_000_000, 2_000_000, 1_000_000)
HYPER = OuterHyperparameters(0.7, 0.9)
BYTES_PER_PARAMETER = 24  # read w 4, m 4, deltas 3 x 2; write w 4, m 4, wire 2


class State:
    """The arrays of one variant: [params] each."""

    def __init__(self, params: int) -> None:
        rng = np.random.default_rng(0)
        self.weights = rng.standard_normal(params, np.float32)
        self.momentum = np.zeros(params, np.float32)
        self.wire = np.zeros(params, BF16)


def make_deltas(params: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [(rng.standard_normal(params, np.float32) * np.float32(1e-3)).astype(BF16) for _ in TOKENS]


def memory_copy(params: int) -> Callable[[], None]:
    source = np.ones(params * BYTES_PER_PARAMETER // 2, np.uint8)
    target = np.zeros_like(source)
    return lambda: np.copyto(target, source)


def our_merge(params: int, deltas: list[np.ndarray], chunk: int) -> Callable[[], None]:
    state, shares = State(params), token_shares(TOKENS)
    into = Merged(state.weights, state.momentum, state.wire)

    def run() -> None:
        for _ in merge_tensor(state.weights, state.momentum, deltas, shares, HYPER, Workspace(chunk), into):
            pass

    return run


def torch_sgd(params: int, deltas: list[np.ndarray]) -> Callable[[], None]:
    state, shares = State(params), token_shares(TOKENS)
    weights = torch.nn.Parameter(torch.from_numpy(state.weights))
    weights.grad = torch.zeros_like(weights)
    optimizer = torch.optim.SGD([weights], lr=HYPER.eta, momentum=HYPER.beta, nesterov=True, fused=True)
    tensors = [torch.from_numpy(delta.view(np.uint16)).view(torch.bfloat16) for delta in deltas]
    wire = torch.zeros(params, dtype=torch.bfloat16)

    def run() -> None:
        assert weights.grad is not None
        weights.grad.zero_()
        for tensor, share in zip(tensors, shares, strict=True):
            weights.grad.add_(tensor, alpha=-float(share))
        optimizer.step()
        wire.copy_(weights.detach())

    return run


def numpy_whole(params: int, deltas: list[np.ndarray]) -> Callable[[], None]:
    state, shares = State(params), token_shares(TOKENS)

    def run() -> None:
        mean = sum(delta.astype(np.float32) * share for delta, share in zip(deltas, shares, strict=True))
        state.momentum = np.float32(HYPER.beta) * state.momentum + np.float32(HYPER.eta) * mean
        state.weights = state.weights + np.float32(HYPER.beta) * state.momentum + np.float32(HYPER.eta) * mean
        state.wire = state.weights.astype(ml_dtypes.bfloat16)

    return run


def seconds(run: Callable[[], None]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def measure(params: int, repetitions: int, chunk: int) -> dict[str, float]:
    deltas = make_deltas(params)
    ours = our_merge(params, deltas, chunk)
    variants = {
        "copy": memory_copy(params),
        "merge": ours,
        "torch": torch_sgd(params, deltas),
        "numpy": numpy_whole(params, deltas),
    }
    order = random.Random(0)
    taken: dict[str, list[float]] = {name: [] for name in variants}
    for repetition in range(repetitions + 1):
        for name in order.sample(sorted(variants), len(variants)):
            elapsed = seconds(variants[name])
            if repetition:  # the first one pays for page faults and lazy initialisation
                taken[name].append(elapsed)

    def ratio(over: str, under: str) -> float:
        return statistics.median(a / b for a, b in zip(taken[over], taken[under], strict=True))

    tracemalloc.start()
    ours()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        "params": params,
        "chunk": chunk,
        "merge_s": statistics.median(taken["merge"]),
        "merge_over_copy": ratio("merge", "copy"),
        "torch_over_merge": ratio("torch", "merge"),
        "numpy_over_merge": ratio("numpy", "merge"),
        "peak_extra_mib": peak / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--params", type=int, default=20_000_000)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--chunk", type=int, default=CHUNK, help="elements per chunk of our merge")
    parser.add_argument("--torch-threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.torch_threads)
    result = measure(arguments.params, arguments.repetitions, arguments.chunk)
    if arguments.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:<18}{value:>14,.3f}")


if __name__ == "__main__":
    main()
