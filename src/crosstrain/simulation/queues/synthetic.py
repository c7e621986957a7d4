"""Queues that nobody logged: waits with a memory, and a scheduler's estimate that is wrong in a way that can be learnt.

log(wait) of a shape follows an autoregressive process around its median, common to all shapes of the site, with a part of its
own. The estimate is the wait times a constant bias times lognormal noise; so a calibrated forecast can be good, and never
perfect. FedQueue (arXiv 2605.02125) simulates queues as independent lognormal waits: that is `memory_h = 0`.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import numpy as np

from crosstrain.simulation.queues.probes import DAY_S, HOUR_S, ProbeSpec, ProbeTable


@dataclass(frozen=True, slots=True)
class SyntheticQueue:
    """A made-up queue.

    Attributes:
        shapes: nodes and time limit in seconds of each shape.
        median_s: median wait of each shape.
        sigma: standard deviation of log(wait).
        memory_h: hours after which the state of the queue is forgotten to 1/e.
        own: share of the variance that each shape has for itself.
        bias: estimate over wait, in the median.
        noise: standard deviation of log(estimate / wait) around the bias.
        days: how long it is known for.
    """

    shapes: tuple[tuple[int, int], ...]
    median_s: tuple[float, ...]
    sigma: float = 1.0
    memory_h: float = 24.0
    own: float = 0.3
    bias: float = 2.5
    noise: float = 0.5
    days: float = 60.0


def synthetic_probes(queue: SyntheticQueue, seed: str, every_s: int = 2 * HOUR_S) -> ProbeTable:
    """Estimates and true waits at regular times. The same seed makes the same table."""
    rng = random.Random(f"queue {seed}")
    times = np.arange(0, queue.days * DAY_S, every_s, dtype=np.float64)
    keep = math.exp(-every_s / (queue.memory_h * HOUR_S)) if queue.memory_h > 0 else 0.0
    common = _process(rng, len(times), keep)
    waits, test_only, plans = [], [], []
    for median_s in queue.median_s:
        mixed = math.sqrt(1 - queue.own) * common + math.sqrt(queue.own) * _process(rng, len(times), keep)
        wait = median_s * np.exp(queue.sigma * mixed)
        waits.append(wait)
        test_only.append(wait * queue.bias * np.exp(queue.noise * _process(rng, len(times), 0.0)))
        plans.append(wait * math.sqrt(queue.bias) * np.exp(queue.noise / 2 * _process(rng, len(times), 0.0)))
    estimates = np.array(test_only).T
    return ProbeTable(
        ProbeSpec(queue.shapes, every_s, 0, 0),
        times,
        estimates,
        estimates.min(axis=1),
        np.array(plans).T,
        np.array(waits).T,
        np.full(len(times), min(1.0, 1 / queue.bias)),
    )


def _process(rng: random.Random, length: int, keep: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """A stationary autoregressive process of unit variance."""
    values, last, fresh = np.empty(length), rng.gauss(0, 1), math.sqrt(1 - keep * keep)
    for index in range(length):
        values[index] = last
        last = keep * last + fresh * rng.gauss(0, 1)
    return values
