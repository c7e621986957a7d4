"""What the demo makes before anything runs: a corpus, a run file, and sites that differ in speed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from crosstrain.assembly import RunFiles, load_corpus, open_run
from crosstrain.corpus.build import build_corpus
from crosstrain.corpus.options import BuildOptions, BuildProgress
from crosstrain.corpus.reading import stdlib_sources
from crosstrain.demo.faults import LEAST_ROUNDS
from crosstrain.errors import EnvironmentFault, UsageError
from crosstrain.runfile import Local, write_run_file
from crosstrain.wire.listening import listen

NAMES = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta")
SEQ_LEN = 128
HELDOUT = 0.05
"""Of the documents: of a few dozen, fewer than this can be a single short one, whose loss says nothing."""
HELDOUT_WINDOWS = 64
ENDLESS = 1_000_000
"""Epochs: the rounds end the demo, however little text there is."""

LEASE = """heartbeat_s = 0.5
ttl_floor_s = 6.0
join_patience_s = 20.0"""
"""Leases short enough to watch one expire. Whoever lives is waited for, however busy the machine; whoever died is gone after the
TTL floor, and so is the wait for it."""
SITE = """margin_s = 1.0
record_windows = true"""
PACES = (
    "micro_batch = 4",
    'micro_batch = 2\naccumulate = 2\nlaunch = ["nice", "-n", "5"]',
    'micro_batch = 2\nlaunch = ["nice", "-n", "10"]',
)
"""Sites of different speed, in turn: batch of a step, its cut, and the share of the machine."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user asked for.

    Attributes:
        inputs: text to train on; empty for the sources of Python's standard library.
        faults: whether to kill and restart processes.
        vocab: tokens of the tokenizer that is trained on the text.
    """

    inputs: tuple[Path, ...] = ()
    sites: int = 3
    rounds: int = 16
    faults: bool = True
    seed: int = 1
    vocab: int = 2048

    @property
    def names(self) -> tuple[str, ...]:
        return NAMES[: self.sites]


def check(wishes: Wishes) -> None:
    """Rejects what cannot work before any file is written.

    Raises:
        UsageError: an option is out of range.
        EnvironmentFault: no trainer is installed.
    """
    check_sites(wishes.sites)
    if wishes.rounds < 1:
        raise UsageError(f"--rounds must be at least 1, and is {wishes.rounds}.", "leave it out for 16")
    if wishes.faults and wishes.rounds < LEAST_ROUNDS:
        raise UsageError(
            f"The faults need {LEAST_ROUNDS} rounds to happen in, and --rounds is {wishes.rounds}.",
            "give more --rounds, or --no-faults",
        )
    check_engine()


def check_sites(sites: int) -> None:
    """Rejects a number of sites that there are no names for."""
    if not 1 <= sites <= len(NAMES):
        raise UsageError(f"--sites must be 1 to {len(NAMES)}, and is {sites}.", "3 shows most on a laptop")


def check_engine() -> None:
    """Rejects a Python without the trainer."""
    missing = [name for name in ("torch", "torchtitan") if importlib.util.find_spec(name) is None]
    if missing:
        raise EnvironmentFault(
            f"This trains a model, and {' and '.join(missing)} cannot be imported.",
            "pip install 'crosstrain[train]'",
        )


def prepare(directory: Path, wishes: Wishes, report: Callable[[BuildProgress], None]) -> RunFiles:
    """Builds the corpus and writes RUN.toml into `directory`.

    Raises:
        UsageError: the text is empty, binary, or too short.
    """
    options = BuildOptions(vocab=wishes.vocab, seq_len=SEQ_LEN, heldout=HELDOUT)
    port = free_port()
    local = Local(
        url=f"http://127.0.0.1:{port}",
        port=port,
        rounds=wishes.rounds,
        seed=wishes.seed,
        epochs=ENDLESS,
        heldout_windows=HELDOUT_WINDOWS,
        sites=tuple((name, PACES[number % len(PACES)]) for number, name in enumerate(wishes.names)),
        lease=LEASE,
        site=SITE,
    )
    return build_run(directory, "demo", wishes.inputs or stdlib_sources(), options, local, report)


def build_run(
    directory: Path,
    name: str,
    inputs: Sequence[Path],
    options: BuildOptions,
    local: Local,
    report: Callable[[BuildProgress], None],
) -> RunFiles:
    """Makes corpus and RUN.toml of a run with the tiny model.

    Raises:
        UsageError: the text is empty, binary, or too short.
    """
    manifest = build_corpus(inputs, directory / "corpus", options, report)
    path = directory / "RUN.toml"
    write_run_file(path, name, "tiny", Path("corpus"), manifest, local)
    files = open_run(path)
    load_corpus(files)
    return files


def free_port() -> int:
    """A port that nobody listens on; not 0, because a coordinator comes back at the same address after it was killed."""
    with listen("127.0.0.1", 0) as listener:
        return int(listener.getsockname()[1])
