"""Finished shards into train.bin and heldout.bin, in the order of the inputs, with bounded memory.

Memory holds a chunk of tokens and the table of documents, about 100 bytes for each while duplicates are looked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from crosstrain.corpus.durable import replacing
from crosstrain.corpus.manifest import SplitRecord, windows_of
from crosstrain.corpus.records import Advance
from crosstrain.corpus.shards import Rows, ShardFile
from crosstrain.corpus.split import CUT, DROPPED, HELDOUT, Assignment, runs
from crosstrain.corpus.tokenizer import TokenizerFile


class _SplitWriter:
    """One token file: documents with the end-of-text token between them."""

    def __init__(self, file: BinaryIO, tokenizer: TokenizerFile) -> None:
        self._file = file
        self._eot = np.array([tokenizer.eot], np.dtype(tokenizer.dtype).newbyteorder("<"))
        self._digest = hashlib.sha256()
        self._tokens = 0
        self._documents = 0

    @property
    def is_empty(self) -> bool:
        return self._tokens == 0

    def append(self, chunks: Iterable[npt.NDArray[Any]], documents: int) -> None:
        if self._tokens:
            self._write(self._eot)
        for chunk in chunks:
            self._write(chunk)
        self._documents += documents

    def _write(self, tokens: npt.NDArray[Any]) -> None:
        content = tokens.tobytes()
        self._digest.update(content)
        self._file.write(content)
        self._tokens += len(tokens)

    def record(self, seq_len: int) -> SplitRecord:
        return SplitRecord(
            tokens=self._tokens,
            windows=windows_of(self._tokens, seq_len),
            documents=self._documents,
            sha256=self._digest.hexdigest(),
        )


def pack(
    out: Path,
    shards: Sequence[tuple[ShardFile, Rows]],
    assignment: Assignment,
    tokenizer: TokenizerFile,
    seq_len: int,
    advance: Advance,
) -> tuple[SplitRecord, SplitRecord]:
    """Writes both files and returns their records, train first.

    Raises:
        EnvironmentFault: a file cannot be written.
        IntegrityError: a shard is damaged.
    """
    with replacing(out / "train.bin") as train_file, replacing(out / "heldout.bin") as heldout_file:
        train, heldout = _SplitWriter(train_file, tokenizer), _SplitWriter(heldout_file, tokenizer)
        row = 0
        for shard, rows in shards:
            shard.check()
            _copy(shard, rows, assignment, row, train, heldout)
            row += len(rows)
            advance(shard.path.stat().st_size)
        return train.record(seq_len), heldout.record(seq_len)


def _copy(
    shard: ShardFile, rows: Rows, assignment: Assignment, row: int, train: _SplitWriter, heldout: _SplitWriter
) -> None:
    """Appends one shard's documents, whose first is number `row` of the table."""
    ends = np.cumsum(rows["tokens"].astype(np.int64) + 1)
    for first, end, destination in runs(assignment.destinations[row : row + len(rows)]):
        start, stop = int(ends[first - 1]) if first else 0, int(ends[end - 1]) - 1
        if destination == CUT:
            cut = stop - assignment.tail_tokens
            train.append(shard.tokens(start, cut), 1)
            if heldout.is_empty:
                heldout.append(shard.tokens(cut, stop), 1)
        elif destination != DROPPED:
            (heldout if destination == HELDOUT else train).append(shard.tokens(start, stop), end - first)
