"""What a build is asked for, and what it reports while it works."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from crosstrain.errors import UsageError

MIN_VOCAB = 257
"""256 byte values and the end-of-text token."""
MAX_VOCAB = 2**32


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How to build a corpus. Exactly one of `tokenizer` and `vocab` is given."""

    tokenizer: Path | None = None
    """A Hugging Face `tokenizers` file."""
    vocab: int | None = None
    """Train a byte-level BPE with this many tokens on the training documents."""
    seq_len: int = 1024
    """Tokens of a window that are predicted."""
    heldout: float = 0.02
    """Fraction of documents held out; 0 for none."""
    field: str = "text"
    """Of a jsonl record or a parquet row."""
    eot: str | None = None
    """The tokenizer's end-of-text token, where it is not one of the usual names."""
    keep_duplicates: bool = False
    workers: int | None = None
    """Processes; as many as cores by default. Does not change the result."""
    force: bool = False
    """Replace what is in the directory."""
    shard_bytes: int | None = None
    """Input of one unit of work, which is what a restart can lose. From 1 to 64 MiB by default, growing with the
    inputs so that a large corpus does not become a million files."""
    sample_bytes: int = 16 << 20
    """Text that a tokenizer is trained on, at most."""

    @property
    def worker_count(self) -> int:
        return self.workers or _cores()


def _cores() -> int:
    # A batch job or a container may use fewer cores than the machine has; macOS cannot say.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_options(options: BuildOptions) -> None:
    """Rejects what cannot work before any file is touched.

    Raises:
        UsageError: names the option.
    """
    if (options.tokenizer is None) == (options.vocab is None):
        raise UsageError(
            "A corpus needs one tokenizer.", "give either --tokenizer FILE or --vocab N (2048 suits a small model)"
        )
    if options.vocab is not None and not MIN_VOCAB <= options.vocab <= MAX_VOCAB:
        raise UsageError(
            f"A byte-level vocabulary has at least {MIN_VOCAB} tokens (256 bytes and end of text), and --vocab is {options.vocab}.",
            "give --vocab 2048 or more",
        )
    if options.seq_len < 1:
        raise UsageError(f"--seq-len must be at least 1, and is {options.seq_len}.", "the usual values are 128 to 8192")
    if not 0.0 <= options.heldout < 1.0:
        raise UsageError(
            f"--heldout is a fraction from 0 to less than 1, and is {options.heldout}.", "0.02 holds out 2 %"
        )
    if options.workers is not None and options.workers < 1:
        raise UsageError(f"--workers must be at least 1, and is {options.workers}.", "leave it out to use every core")


Phase = Literal["scanning", "training the tokenizer", "encoding", "packing", "done", "unchanged"]


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """What a build is doing.

    Attributes:
        phase: `unchanged` says that the directory already holds this corpus.
        done_bytes: input bytes behind this phase, of `total_bytes`; both 0 where a phase cannot tell.
        done_shards: units of work behind this phase, of `total_shards`.
        reused_shards: those of them that an earlier, interrupted build had finished.
        elapsed_s: seconds since this phase began.
        rate: bytes per second of this phase, reused ones left out; 0 while unknown.
    """

    phase: Phase
    done_bytes: int = 0
    total_bytes: int = 0
    done_shards: int = 0
    total_shards: int = 0
    reused_shards: int = 0
    elapsed_s: float = 0.0
    rate: float = 0.0

    @property
    def eta_s(self) -> float | None:
        """Seconds until this phase ends at the present rate."""
        return (self.total_bytes - self.done_bytes) / self.rate if self.rate > 0 else None
