"""How fast the merge is, against what else the same machine could do in the same minute.

Three bf16 deltas -> token-weighted mean -> Nesterov -> float32 weights and momentum in place, bf16 copy out. Per parameter
that is 24 bytes of memory traffic at least, so the floor is a memory copy with 24 bytes of traffic. The variants run in
shuffled order in every repetition and each ratio is the median over repetitions, because other processes on the machine slow
them all alike; the table has the smallest and the largest beside it.

    merge_over_copy    our merge / the memory copy                                          (bar: at most 4)
    torch_over_merge   torch.optim.SGD(nesterov, fused) / our merge                         (bar: at least 1)
    numpy_over_merge   whole-array numpy, as FedAvgM servers write it, with Nesterov / our merge  (bar: at least 6)
    fallback_over_merge  our merge in numpy, as it runs where there was no C compiler / our merge
    int8_over_merge    our merge of int8 deltas / of bf16 deltas
    int4_over_merge    ... and of int4 deltas
    resumed_over_merge going on with a stored float32 sum of the first two deltas / merging all three
    peak_extra_mib     memory that our merge allocates beside its inputs and outputs        (bar: below 256)

All of ours run on one thread; torch on as many as --torch-threads says. On a machine that is busy with other things, wall time is
noise; --clock cpu takes the processor time of all threads, which is fair with --torch-threads 1. 0.15 B parameters need 8 GiB of
memory.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
import torch

from crosstrain.outer.encoding import BF16, Array, Delta, Float32, Quantized, QuantizedCodec, block_count, step_bytes
from crosstrain.outer.outer_optimizer import OuterHyperparameters
from crosstrain.outer.weighted_merge import (
    CHUNK,
    Kernel,
    Merged,
    NumpyKernel,
    Workspace,
    compiled_kernel,
    merge_tensor,
    weigh,
)

TOKENS = (3_000_000, 2_000_000, 1_000_000)
WEIGHTING = weigh(TOKENS)
HYPER = OuterHyperparameters(0.7, 0.9)
BYTES_PER_PARAMETER = 24  # read w 4, m 4, deltas 3 x 2; write w 4, m 4, wire 2
PIECE = 1 << 20  # elements made at a time, so that making the inputs takes no memory


class State:
    """The arrays that the variants work on in turn: [params] each."""

    def __init__(self, params: int) -> None:
        self.weights = noise(params, 0, 1.0)
        self.momentum = np.zeros(params, np.float32)
        self.wire = np.zeros(params, BF16)


def noise(params: int, seed: int, size: float) -> Float32:
    rng, out = np.random.default_rng(seed), np.empty(params, np.float32)
    for begin in range(0, params, PIECE):
        part = out[begin : begin + PIECE]
        rng.standard_normal(dtype=np.float32, out=part)
        part *= np.float32(size)
    return out


def make_deltas(params: int) -> list[Array]:
    return [noise(params, seed, 1e-3).astype(BF16) for seed in range(len(TOKENS))]


def make_quantized(params: int, codec: QuantizedCodec) -> list[Delta]:
    blocks, rng = block_count(params), np.random.default_rng(2)
    scales = np.full(blocks, 1e-5, np.float32).astype(BF16)
    kind = np.int8 if codec == "int8" else np.uint8
    steps = rng.integers(-127, 127, (blocks, step_bytes(codec)), np.int8).view(kind)
    return [Quantized(steps, scales) for _ in TOKENS]


def memory_copy(params: int) -> Callable[[], None]:
    source = np.ones(params * BYTES_PER_PARAMETER // 2, np.uint8)
    target = np.zeros_like(source)
    return lambda: np.copyto(target, source)


def our_merge(
    state: State, deltas: Sequence[Delta], chunk: int, kernel: Kernel | None = None, factors: int = len(TOKENS)
) -> Callable[[], None]:
    into = Merged(state.weights, state.momentum, state.wire)
    weighting = WEIGHTING._replace(factors=WEIGHTING.factors[-factors:])

    def run() -> None:
        workspace = Workspace(chunk, kernel)
        for _ in merge_tensor(state.weights, state.momentum, deltas, weighting, HYPER, workspace, into):
            pass

    return run


def torch_sgd(state: State, deltas: Sequence[Array]) -> Callable[[], None]:
    weights = torch.nn.Parameter(torch.from_numpy(state.weights))
    weights.grad = torch.zeros_like(weights)
    optimizer = torch.optim.SGD([weights], lr=HYPER.eta, momentum=HYPER.beta, nesterov=True, fused=True)
    tensors = [torch.from_numpy(delta.view(np.uint16)).view(torch.bfloat16) for delta in deltas]
    wire = torch.from_numpy(state.wire.view(np.uint16)).view(torch.bfloat16)

    def run() -> None:
        assert weights.grad is not None
        weights.grad.zero_()
        for tensor, count in zip(tensors, TOKENS, strict=True):
            weights.grad.add_(tensor, alpha=-count / sum(TOKENS))
        optimizer.step()
        wire.copy_(weights.detach())

    return run


def numpy_whole(state: State, deltas: Sequence[Array]) -> Callable[[], None]:
    shares = [np.float32(count / sum(TOKENS)) for count in TOKENS]
    eta, beta = np.float32(HYPER.eta), np.float32(HYPER.beta)

    def run() -> None:
        mean = sum(delta.astype(np.float32) * share for delta, share in zip(deltas, shares, strict=True))
        momentum = beta * state.momentum + eta * mean
        weights = state.weights + beta * momentum + eta * mean
        state.wire = weights.astype(ml_dtypes.bfloat16)

    return run


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def seconds(run: Callable[[], None], clock: Callable[[], float]) -> float:
    begin = clock()
    run()
    return clock() - begin


def variants(params: int, chunk: int) -> dict[str, Callable[[], None]]:
    state, deltas = State(params), make_deltas(params)
    stored_sum = noise(params, 0, 1e-3)
    return {
        "copy": memory_copy(params),
        "merge": our_merge(state, deltas, chunk),
        "torch": torch_sgd(state, deltas),
        "numpy": numpy_whole(state, deltas),
        "fallback": our_merge(state, deltas, chunk, NumpyKernel(chunk)),
        "int8": our_merge(state, make_quantized(params, "int8"), chunk),
        "int4": our_merge(state, make_quantized(params, "int4"), chunk),
        "resumed": our_merge(state, [stored_sum, deltas[2]], chunk, factors=2),
    }


def measure(params: int, repetitions: int, chunk: int, clock: Callable[[], float]) -> dict[str, dict[str, float]]:
    """Name -> median, smallest and largest."""
    runs = variants(params, chunk)
    order = random.Random(0)
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for repetition in range(repetitions + 1):
        for name in order.sample(sorted(runs), len(runs)):
            elapsed = seconds(runs[name], clock)
            if repetition:  # the first one pays for page faults and lazy initialisation
                taken[name].append(elapsed)

    def ratio(over: str, under: str) -> dict[str, float]:
        return spread([a / b for a, b in zip(taken[over], taken[under], strict=True)])

    tracemalloc.start()
    runs["merge"]()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        "merge_over_copy": ratio("merge", "copy"),
        "torch_over_merge": ratio("torch", "merge"),
        "numpy_over_merge": ratio("numpy", "merge"),
        "fallback_over_merge": ratio("fallback", "merge"),
        "int8_over_merge": ratio("int8", "merge"),
        "int4_over_merge": ratio("int4", "merge"),
        "resumed_over_merge": ratio("resumed", "merge"),
        "peak_extra_mib": spread([peak / 2**20]),
        "merge_ns_per_param": spread([1e9 * elapsed / params for elapsed in taken["merge"]]),
        "copy_gb_per_s": spread([BYTES_PER_PARAMETER * params / 1e9 / elapsed for elapsed in taken["copy"]]),
    }


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--params", type=int, nargs="+", default=[20_000_000, 150_000_000])
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--chunk", type=int, default=CHUNK, help="elements per chunk of our merge")
    parser.add_argument("--torch-threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clock", choices=[*CLOCKS], default="wall")
    parser.add_argument("--json", action="store_true", help="JSON, one object per size, instead of tables")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.torch_threads)
    for params in arguments.params:
        found = measure(params, arguments.repetitions, arguments.chunk, CLOCKS[arguments.clock])
        kind = "compiled" if compiled_kernel() else "numpy"
        if arguments.json:
            print(json.dumps({"params": params, "kernel": kind} | {name: row["median"] for name, row in found.items()}))
            continue
        print(f"{params:,} parameters, {kind} kernel{'median':>17}{'min':>10}{'max':>10}")
        for name, row in found.items():
            print(f"  {name:<40}" + "".join(f"{value:>10.2f}" for value in row.values()))


if __name__ == "__main__":
    main()
