"""What the codecs of `wire.delta` cost in quality and bring in bytes, on the model and the text of `crosstrain demo`.

Each arm trains the same blocks in the same order at three sites, with torchtitan, their own inner state, and the production
export, merge and outer step; only the codec differs, so that two arms of one seed differ by it alone. In the demo itself, how many
blocks a site gets in a round depends on the clock, so that two runs differ by more than the codec.

    loss            nats per token on held-out text after the last round
    loss_over_bf16  against the bf16 arm of the same seed, in percent     (bars: int8 0.5, int4 with error feedback 1)
    bytes_per_round what the sites upload in a round
    error           of a single delta, relative L2 distance of what was sent from what was learnt, mean over the run
    delta_over_packed, weights_over_packed    bytes without over bytes with `wire.compress = "planes"`, of the same files; training
                    does not depend on it
    ..._packs_mb_s, ..._unpacks_mb_s          megabytes of the raw file per processor second

"int4 alone" is int4 without error feedback, for comparison; no run can have it. "again" is bf16 once more, which shows what is
noise: 0 if the machine computes the same twice.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from training_arm import SITES, Arm, initial_state

from crosstrain.assembly import load_corpus, trainer_settings
from crosstrain.demo.prepare import NAMES, Wishes, prepare
from crosstrain.site.titan.trainer import TitanTrainer
from crosstrain.storage.delta_file import Codec

ARMS: dict[str, tuple[Codec, bool]] = {
    "bf16": ("bf16", False),
    "int8": ("int8", True),
    "int4": ("int4", True),
    "int4 alone": ("int4", False),
    "again": ("bf16", False),
}
"""Name -> codec, and whether what it leaves out goes into the next delta."""


def measure(seed: int, rounds: int, names: list[str]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        files = prepare(directory / "run", Wishes(sites=SITES, rounds=rounds, faults=False, seed=seed), lambda _: None)
        trainer = TitanTrainer(trainer_settings(files, load_corpus(files), NAMES[0], directory))
        initial_state(trainer, directory / "arms" / "first")
        for name in names:
            arm = Arm(trainer, files, directory / "arms" / name.replace(" ", "-"), *ARMS[name])
            loss = arm.run()
            found[name] = {
                "loss": loss,
                "bytes_per_round": SITES * statistics.mean(arm.sizes),
                "error": statistics.mean(arm.errors),
                **arm.deltas.row("delta"),
                **arm.weights.row("weights"),
            }
            print(f"seed {seed}, {name}: loss {loss:.4f}", file=sys.stderr, flush=True)
    for row in found.values():
        row["loss_over_bf16"] = 100 * (row["loss"] / found["bf16"]["loss"] - 1)
        row["bf16_bytes_over"] = found["bf16"]["bytes_per_round"] / row["bytes_per_round"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--arms", nargs="+", choices=[*ARMS], default=[*ARMS], help="bf16 is always one of them")
    parser.add_argument("--json", action="store_true", help="JSON, one object per seed, instead of tables")
    arguments = parser.parse_args()
    names = ["bf16", *(name for name in arguments.arms if name != "bf16")]
    for seed in arguments.seeds:
        found = measure(seed, arguments.rounds, names)
        if arguments.json:
            print(json.dumps({"seed": seed, "rounds": arguments.rounds, "arms": found}), flush=True)
            continue
        print(f"seed {seed}, {arguments.rounds} rounds", flush=True)
        for name, row in found.items():
            print(f"  {name:<12}" + "  ".join(f"{key} {value:.4g}" for key, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
