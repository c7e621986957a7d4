"""Probes of a replayed log: at regular times, what the estimates would say of each shape and how long it would really wait."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from crosstrain.placement.queue_plan import Queue, QueueJob
from crosstrain.placement.run_times import NEWEST_RUNS, PastRun, RunTimes
from crosstrain.simulation.queues.backfill import Array, Order, Scheduler, Workload
from crosstrain.simulation.queues.slurm_estimate import backlog_s, drain_s
from crosstrain.simulation.queues.swf import Trace
from crosstrain.simulation.queues.tryouts import Tryouts

HOUR_S = 3600
DAY_S = 86400
DISCOUNT_WINDOW_S = 48 * HOUR_S
FORMAT = 2
"""Part of the cache's key: raised when the same inputs make other numbers."""


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    """Which probes.

    Attributes:
        shapes: nodes and time limit in seconds.
        every_s: between two probes.
        warm_up_s: from the first submission to the first probe, until the empty machine is full.
        tail_s: from the last probe to the last submission, so that the queue behind a probe is not shorter than it was.
    """

    shapes: tuple[tuple[int, int], ...]
    every_s: int = 2 * HOUR_S
    warm_up_s: int = 2 * DAY_S
    tail_s: int = 3 * DAY_S


@dataclass(frozen=True, slots=True)
class ProbeTable:
    """What the probes said: rows are times, columns are shapes, all in seconds.

    Attributes:
        times_s: since the log's first submission, shape (T,).
        test_only_s: Slurm's own estimate of the wait, shape (T, S).
        backlog_s: its part that the pending jobs make, shape (T,); what a probe of a job that fits now would say.
        plan_s: own plan of the queue, shape (T, S).
        wait_s: the true wait of a job submitted then, shape (T, S).
        discount: used over requested node-time of the jobs that ended in the last 48 h, shape (T,); 1 if none did.
    """

    spec: ProbeSpec
    times_s: Array
    test_only_s: Array
    backlog_s: Array
    plan_s: Array
    wait_s: Array
    discount: Array


def record_probes(trace: Trace, order: Order, spec: ProbeSpec) -> ProbeTable:
    """Replays the log and probes it; seconds for 12,000 jobs and 4 shapes.

    Every pending job counts as one of higher priority: without fair share, a job of age 0 is behind all of them in both orders.

    Raises:
        ValueError: a shape is larger than the machine, or the log is too short for a probe.
    """
    work = Workload(trace.jobs, trace.nodes, min(nodes for nodes, _ in spec.shapes))
    tryouts, origin = Tryouts(work, order), trace.jobs[0].submit_s
    times = np.arange(origin + spec.warm_up_s, trace.jobs[-1].submit_s - spec.tail_s, spec.every_s, dtype=np.float64)
    if not len(times):
        raise ValueError(f"{trace.name} is {trace.span_s / DAY_S:.1f} days long, too short for a probe")
    rows = []
    for time in times.tolist():
        tryouts.advance(time)
        rows.append(_estimates(tryouts.machine, spec.shapes))
        tryouts.submit([(nodes, float(limit_s)) for nodes, limit_s in spec.shapes])
    tryouts.finish()
    test_only, backlog, plan = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
    wait = np.array([tryouts.waits_s[number] for number in range(test_only.size)]).reshape(test_only.shape)
    return ProbeTable(spec, times, test_only, backlog, plan, wait, _discount(tryouts.machine, work, times))


def _estimates(machine: Scheduler, shapes: Sequence[tuple[int, int]]) -> tuple[list[float], float, list[float]]:
    """The scheduler's own estimate per shape, its backlog, and the own plan per shape."""
    running, pending = machine.running(), machine.pending()
    backlog = backlog_s(machine.work.machine_nodes, pending)
    return (
        [drain_s(nodes, machine.free, running) + backlog for nodes, _ in shapes],
        backlog,
        visible(machine).waits(shapes, Random("run times").random),
    )


def visible(machine: Scheduler) -> Queue:
    """What `squeue` and `sacct` would show of a machine."""
    work = machine.work
    past = [
        PastRun(str(work.user[job]), work.limit[job], work.run[job] / work.limit[job])
        for job in machine.ended[-NEWEST_RUNS:]
    ]
    running = [
        QueueJob(work.nodes[job], work.limit[job], str(work.user[job]), machine.now - machine.started[job])
        for job in machine.at_work()
    ]
    pending = [QueueJob(work.nodes[job], work.limit[job], str(work.user[job])) for job in machine.waiting()]
    return Queue(machine.free, running, pending, RunTimes(past))


def _discount(machine: Scheduler, work: Workload, times: Array) -> Array:
    """Node-time used over node-time requested by jobs that ended in the 48 h before each time; a job at its limit counts as 1."""
    nodes, limit, run = (np.array(values[: work.count]) for values in (work.nodes, work.limit, work.run))
    ends = np.array([machine.started[job] for job in range(work.count)]) + run
    by_end = np.argsort(ends)
    used = np.concatenate([[0.0], np.cumsum((nodes * np.minimum(run, limit))[by_end])])
    asked = np.concatenate([[0.0], np.cumsum((nodes * limit)[by_end])])
    last = np.searchsorted(ends[by_end], times, side="right")
    first = np.searchsorted(ends[by_end], times - DISCOUNT_WINDOW_S, side="right")
    requested = asked[last] - asked[first]
    return np.where(requested > 0, (used[last] - used[first]) / np.maximum(requested, 1.0), 1.0)


def cached_probes(trace: Trace, order: Order, spec: ProbeSpec, cache: Path) -> ProbeTable:
    """`record_probes`, or what it made earlier of the same log and the same probes."""
    key = json.dumps(
        [
            FORMAT,
            trace.digest,
            trace.nodes,
            len(trace.jobs),
            order,
            spec.shapes,
            spec.every_s,
            spec.warm_up_s,
            spec.tail_s,
        ]
    )
    path = cache / f"{trace.name}-{order}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npz"
    try:
        with path.open("rb") as stream, np.load(stream) as held:
            return ProbeTable(spec, *(held[name] for name in _COLUMNS))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        table = record_probes(trace, order, spec)
    cache.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    with part.open("wb") as written:
        np.savez_compressed(written, **{name: getattr(table, name) for name in _COLUMNS})
    part.replace(path)
    return table


_COLUMNS = ("times_s", "test_only_s", "backlog_s", "plan_s", "wait_s", "discount")
