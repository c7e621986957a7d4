"""What `round.overlap` saves in time and costs in quality, on the run of `crosstrain demo`.

Time: a coordinator and two sites as processes, weights over a line with a long way to go (`site.blobs`), everything else directly.
Twice, without and with overlap:

    exchange_share  share of a site's time, between its first step and its last, in which its trainer does not train, as its heartbeats
                    tell it; the mean of all sites                                          (bar: under 0.05 where it is 0.3 without)

Quality: the demo's model and text, three sites, the same blocks in the same order, in this process with the production export, merge
and move:

    loss            nats per token on held-out text after the last round
    loss_at         the generation arrives after that part of a phase: 0 without overlap, 1 when a whole phase is trained ahead

`--parts time` or `--parts quality` measures one of the two.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from slow_line import SlowLine

from crosstrain.assembly import RunFiles, coordinator_client, load_corpus, open_run, trainer_settings
from crosstrain.demo.prepare import NAMES, Wishes, prepare
from crosstrain.demo.processes import Fleet
from crosstrain.errors import Unreachable
from crosstrain.wire.messages import StatusReply

LOOK_S = 0.03
LEAVE_S = 10.0
PATIENCE_S = 900.0
QUALITY_SITES = 3


def exchange_share(
    directory: Path,
    overlap: bool,
    step_s: float,
    delay_s: float,
    rounds: int,
    inputs: Sequence[Path] = (),
    engine: str = "counting",
) -> float:
    """Share of the sites' time that is not training.

    Args:
        step_s: how long a step of the counting engine lasts.
        delay_s: of the weights' line, one way.
    """
    vocab = 300 if inputs else 2048
    files = prepare(directory, Wishes(tuple(inputs), sites=2, rounds=rounds, faults=False, vocab=vocab), lambda _: None)
    with SlowLine(files.config.coordinator.port, delay_s) as line:
        text = files.path.read_text(encoding="utf-8")
        if engine == "counting":
            text = text.replace("[inner]\n", f'[inner]\nengine = "counting"\nrehearsal_step_s = {step_s}\n')
        text = text.replace('dir = "sites"\n', f'dir = "sites"\nblobs = "http://127.0.0.1:{line.port}"\n')
        # The measure of a generation is no exchange; and both sites take the same steps.
        text = re.sub(
            r"\[heldout\]\nwindows = \d+", f"[round]\noverlap = {str(overlap).lower()}\n\n[heldout]\nwindows = 0", text
        )
        text = (
            text[: text.index("\n[sites.")]
            + "\n"
            + "".join(f"[sites.{name}]\nmicro_batch = 4\n\n" for name in NAMES[:2])
        )
        files.path.write_text(text, encoding="utf-8")
        return _watch(open_run(files.path), directory)


def _watch(files: RunFiles, directory: Path) -> float:
    port = files.config.coordinator.port
    client = coordinator_client(f"http://127.0.0.1:{port}")
    seen: dict[str, list[tuple[float, bool]]] = {}
    begun = time.perf_counter()
    (directory / "logs").mkdir()
    with Fleet(files.path, directory / "logs") as fleet:
        fleet.start_coordinator()
        for name in NAMES[:2]:
            fleet.start_site(name)
        while time.perf_counter() - begun < PATIENCE_S:
            fleet.look()
            try:
                status = client.get("status", StatusReply, 0.0)
            except Unreachable:
                time.sleep(LOOK_S)
                continue
            for site in status.sites:
                seen.setdefault(site.name, []).append((time.perf_counter(), site.phase == "training"))
            if status.finished:
                break
            time.sleep(LOOK_S)
        else:
            raise RuntimeError(f"the run in {directory} did not end in {PATIENCE_S:.0f} s")
        fleet.await_sites(LEAVE_S)
    client.close()
    return sum(map(idle_share, seen.values())) / len(seen)


def idle_share(looks: Sequence[tuple[float, bool]]) -> float:
    """Of the time from the first look at a training site to the last, the share without training."""
    at = [index for index, (_, training) in enumerate(looks) if training]
    looks = looks[at[0] : at[-1] + 1]
    whole = looks[-1][0] - looks[0][0]
    idle = sum(later - earlier for (earlier, training), (later, _) in pairwise(looks) if not training)
    return idle / whole


def losses(seed: int, rounds: int, parts: Sequence[float]) -> dict[str, float]:
    """The held-out loss by how much of a phase is trained before the generation is there."""
    from overlap_arm import OverlapArm

    from crosstrain.site.titan.trainer import TitanTrainer

    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        wishes = Wishes(sites=QUALITY_SITES, rounds=rounds, faults=False, seed=seed)
        files = prepare(directory / "run", wishes, lambda _: None)
        trainer = TitanTrainer(trainer_settings(files, load_corpus(files), NAMES[0], directory))
        for part in parts:
            arm = OverlapArm(trainer, files, directory / "arms" / f"{part:g}", "bf16", False, part=part)
            found[f"{part:g}"] = arm.run()
            print(
                f"seed {seed}, generation after {part:g} of a phase: loss {found[f'{part:g}']:.4f}",
                file=sys.stderr,
                flush=True,
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", choices=["time", "quality", "both"], default="both")
    parser.add_argument("--engine", choices=["counting", "titan"], default="counting", help="of the measure of time")
    parser.add_argument("--step-s", type=float, default=0.15)
    parser.add_argument("--delay-s", type=float, default=0.12)
    parser.add_argument("--time-rounds", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--text", type=Path, nargs="+", default=[], help="another text than the demo's, for the measure of time"
    )
    parser.add_argument("--directory", type=Path, help="where the runs of the measure of time stay")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    arguments = parser.parse_args()
    result: dict[str, object] = {}
    if arguments.parts != "quality":
        with tempfile.TemporaryDirectory() as scratch:
            for name, overlap in (("exchange_share_without", False), ("exchange_share_with", True)):
                result[name] = exchange_share(
                    (arguments.directory or Path(scratch)) / name,
                    overlap,
                    arguments.step_s,
                    arguments.delay_s,
                    arguments.time_rounds,
                    arguments.text,
                    arguments.engine,
                )
    if arguments.parts != "time":
        found = losses(arguments.seed, arguments.rounds, (0.0, 0.25, 1.0))
        result |= {"loss_without": found["0"], "loss_with": found["1"], "loss_at": found}
    if arguments.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:<24}{value:.4f}" if isinstance(value, float) else f"{name:<24}{value}")


if __name__ == "__main__":
    main()
