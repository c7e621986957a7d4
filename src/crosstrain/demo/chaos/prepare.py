"""The run that chaos plays with: short leases, frequent checkpoints, small epochs, and a line of its own for each site."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from crosstrain.assembly import RunFiles
from crosstrain.corpus.options import BuildOptions, BuildProgress
from crosstrain.corpus.reading import stdlib_sources
from crosstrain.demo.chaos.forwarder import HOST, Network
from crosstrain.demo.chaos.plan import Fault, Tempo, draw_plan
from crosstrain.demo.prepare import ENDLESS, NAMES, SEQ_LEN, build_run, check_engine, check_sites
from crosstrain.errors import UsageError
from crosstrain.runfile import Local

SOURCES = 18
"""Files of the standard library: an epoch of some hundred blocks, so that a run sees the ends of several."""
VOCAB = 512
HELDOUT = 0.1
HELDOUT_WINDOWS = 8
ROUNDS_PER_MINUTE = 60
"""More than can be: the run must not end before the chaos does."""
STEP_S = 0.12
"""Of the counting trainer."""

Engine = Literal["titan", "counting"]
TEMPI: dict[Engine, Tempo] = {
    "titan": Tempo(ttl=6.0, boot=14.0, gap=5.0),
    "counting": Tempo(ttl=4.0, boot=3.0, gap=1.8),
}


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user asked for."""

    minutes: float = 5.0
    seed: int = 0
    sites: int = 3
    engine: Engine = "titan"

    @property
    def names(self) -> tuple[str, ...]:
        return NAMES[: self.sites]

    @property
    def seconds(self) -> float:
        return 60 * self.minutes

    @property
    def tempo(self) -> Tempo:
        return TEMPI[self.engine]

    @property
    def plan(self) -> tuple[Fault, ...]:
        return draw_plan(self.seed, self.names, self.seconds, self.tempo)


def check(wishes: Wishes) -> None:
    """Rejects what cannot work before any file is written.

    Raises:
        UsageError: an option is out of range.
        EnvironmentFault: no trainer is installed.
    """
    check_sites(wishes.sites)
    least = 2 * wishes.tempo.boot / 60
    if wishes.minutes < least:
        raise UsageError(
            f"--minutes must be at least {least:.1f} with the {wishes.engine} engine, and is {wishes.minutes:g}.",
            "leave it out for 5",
        )
    if wishes.engine == "titan":
        check_engine()


def prepare(
    directory: Path, wishes: Wishes, port: int, network: Network, report: Callable[[BuildProgress], None]
) -> RunFiles:
    """Builds the corpus and writes RUN.toml into `directory`.

    Args:
        port: of the coordinator.
    """
    ttl = wishes.tempo.ttl
    counting = f'engine = "counting"\nrehearsal_step_s = {STEP_S}\n' if wishes.engine == "counting" else ""
    local = Local(
        url=f"http://{HOST}:{port}",
        port=port,
        rounds=max(ROUNDS_PER_MINUTE, round(ROUNDS_PER_MINUTE * wishes.minutes)),
        seed=wishes.seed,
        epochs=ENDLESS,
        micro_batch=4,
        heldout_windows=HELDOUT_WINDOWS,
        sites=tuple((name, f'url = "http://{HOST}:{network.port(name)}"') for name in wishes.names),
        inner=counting,
        outer_round=f"cutoff_s = {8 * ttl}\ndrain_s = {2 * ttl}",
        lease=f"heartbeat_s = {ttl / 8}\nttl_floor_s = {ttl}\nphase_patience_s = {1.5 * ttl}\njoin_patience_s = {ttl / 2}",
        site=f"margin_s = 1.0\ncheckpoint_s = {ttl / 6:.2f}\nrecord_windows = true",
    )
    options = BuildOptions(vocab=VOCAB, seq_len=SEQ_LEN, heldout=HELDOUT)
    return build_run(directory, "chaos", stdlib_sources()[:SOURCES], options, local, report)
