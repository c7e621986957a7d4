"""What the agent costs the inner loop: the same torchtitan steps with and without it, interleaved in one run.

    python benchmarks/overhead.py [--rounds N] [--steps H] [--json]

`bare` is a process that calls torchtitan's train_step in a plain loop. `agent` is a real site (agent, heartbeats, socket,
trainer process, log of windows) of a real coordinator process, timed from the moment it hands a phase to the trainer to the
moment it has the result. Both train the same number of windows of the same shapes; which goes first alternates.

JSON: {"agent_over_bare": median of the rounds' ratios of wall time, "low", "high": their quartiles, "cpu_over_bare": the same
for the CPU seconds of the trainer's process, "agent_cpu_share": CPU seconds of agent and heartbeats over those of the bare
loop, "bare_ms_per_step", "agent_ms_per_step", "rounds"}. On a busy machine wall times of the two kinds differ by chance more
than by cause; the CPU ratios are steadier.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from crosstrain.assembly import RunFiles, coordinator_client, load_corpus, open_run, open_site, trainer_settings
from crosstrain.batch.command import spawn
from crosstrain.clock import pause
from crosstrain.corpus.build import build_corpus
from crosstrain.corpus.options import BuildOptions
from crosstrain.corpus.reading import stdlib_sources
from crosstrain.errors import Unreachable
from crosstrain.runfile import Local, write_run_file
from crosstrain.site.process_link import ProcessLink
from crosstrain.site.trainer_link import Done, LinkEvent
from crosstrain.wire.messages import StatusReply

MICRO_BATCH = 8


@dataclass(frozen=True)
class Cost:
    """Seconds of one phase: by the wall, of the trainer's CPU, of the agent's CPU."""

    wall: float
    trainer: float
    agent: float = 0.0

    def since(self, begun: Cost) -> Cost:
        return Cost(self.wall - begun.wall, self.trainer - begun.trainer, self.agent - begun.agent)


class TimedLink:
    """A trainer link that notes what each run cost, from submission to answer."""

    def __init__(self, inner: ProcessLink) -> None:
        self._inner = inner
        self._begun = Cost(0.0, 0.0)
        self.costs: list[Cost] = []

    def submit(self, op: str, **arguments: Any) -> None:
        if op == "run":
            self._begun = self._now()
        self._inner.submit(op, **arguments)

    def poll(self) -> LinkEvent | None:
        event = self._inner.poll()
        if isinstance(event, Done) and event.op == "run":
            self.costs.append(self._now().since(self._begun))
        return event

    def _now(self) -> Cost:
        return Cost(time.perf_counter(), cpu_seconds(self._inner.pid or 0), time.process_time())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        result = measure(Path(directory), options.rounds, options.steps)
    if options.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:20} {value:.4g}")


def measure(directory: Path, rounds: int, steps: int) -> dict[str, float]:
    """Alternates phases of both kinds; the first round of each warms up and does not count."""
    files, port = prepare(directory, rounds + 1, steps)
    coordinator = spawn([sys.executable, "-m", "crosstrain", "coordinator", str(files.path)], log=directory / "log")
    bare, process = start_bare(files)
    try:
        wait_for(port)
        settings = trainer_settings(files, load_corpus(files), "solo", directory / "sites" / "solo")
        link = TimedLink(ProcessLink(settings, directory / "trainer.log"))
        site = open_site(files, "solo", None, None, 10.0, link)  # type: ignore[arg-type]
        own: list[Cost] = []

        def agent_phase() -> None:
            goal = len(link.costs) + 1
            while len(link.costs) < goal and not (rest := site.agent.step()).over:
                pause(rest.seconds)

        def bare_phase() -> None:
            bare.send(steps)
            own.append(bare.recv())

        phases: list[Callable[[], None]] = [agent_phase, bare_phase]
        for number in range(rounds + 1):
            for phase in phases if number % 2 else reversed(phases):
                phase()
        site.agent.leave("measured")
        site.close()
    finally:
        bare.send(0)
        process.join()
        coordinator.kill_group()
    return summary(link.costs[1:], own[1:], steps)


def summary(agent: list[Cost], bare: list[Cost], steps: int) -> dict[str, float]:
    pairs = list(zip(agent, bare, strict=True))
    low, middle, high = statistics.quantiles([a.wall / b.wall for a, b in pairs], n=4)
    return {
        "agent_over_bare": middle,
        "low": low,
        "high": high,
        "cpu_over_bare": statistics.median(a.trainer / b.trainer for a, b in pairs),
        "agent_cpu_share": statistics.median(a.agent / b.trainer for a, b in pairs),
        "bare_ms_per_step": 1000 * statistics.median(cost.wall for cost in bare) / steps,
        "agent_ms_per_step": 1000 * statistics.median(cost.wall for cost in agent) / steps,
        "rounds": len(pairs),
    }


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def prepare(directory: Path, rounds: int, steps: int) -> tuple[RunFiles, int]:
    """A corpus and a run file with full phases of `steps` steps."""
    from socket import create_server

    with create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    options = BuildOptions(None, 2048, 128, 0.02, "text", None, False, None, False)
    manifest = build_corpus(stdlib_sources()[:200], directory / "corpus", options, lambda _progress: None)
    site = "threads = 1\nrecord_windows = true"
    local = Local(f"http://127.0.0.1:{port}", port, rounds, micro_batch=MICRO_BATCH, heldout_windows=8, site=site)
    path = directory / "RUN.toml"
    write_run_file(path, "overhead", "tiny", directory / "corpus", manifest, local)
    path.write_text(path.read_text().replace("steps = 20 ", f"steps = {steps} ", 1))
    return open_run(path), port


def start_bare(files: RunFiles) -> tuple[Connection, Any]:
    """A process that answers a number of steps with the seconds they took, and 0 by ending."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    settings = trainer_settings(files, load_corpus(files), "solo", files.path.parent / "bare")
    process = context.Process(target=bare_loop, args=(replace(settings, window_log=None), theirs))
    process.start()
    ours.recv()
    return ours, process


def bare_loop(settings: Any, pipe: Connection) -> None:
    from crosstrain.site.titan.trainer import TitanTrainer

    trainer = TitanTrainer(settings)
    titan, windows = trainer._titan, trainer._train
    titan.lr_schedulers.set(settings.inner.lr)
    done = 0
    pipe.send("ready")
    while steps := pipe.recv():
        begun = Cost(time.perf_counter(), time.process_time())
        for _ in range(steps):
            first = done * settings.micro_batch % (windows.count - settings.micro_batch)
            titan.step = done = done + 1
            titan.gc_handler.run(done)
            titan.train_step(iter([windows.batch(range(first, first + settings.micro_batch), settings.micro_batch)]))
        pipe.send(Cost(time.perf_counter(), time.process_time()).since(begun))


def wait_for(port: int) -> None:
    client = coordinator_client(f"http://127.0.0.1:{port}")
    try:
        client.get("status", StatusReply, 30.0)
    except Unreachable as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
