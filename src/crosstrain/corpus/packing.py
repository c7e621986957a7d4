"""Finished shards into train.bin and heldout.bin, in the order of the inputs, with bounded memory.

Memory holds the table of documents (36 bytes each) and a chunk of tokens, whatever the size of the corpus.
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
        tail = assignment.tail_tokens
        for shard, rows in shards:
            shard.check()
            destinations = assignment.destinations[row : row + len(rows)]
            ends = np.cumsum(rows["tokens"].astype(np.int64) + 1)
            for first, end, destination in runs(destinations):
                start, stop = int(ends[first - 1]) if first else 0, int(ends[end - 1]) - 1
                if destination == CUT:
                    train.append(shard.tokens(start, stop - assignment.tail_tokens), 1)
                    if tail:
                        heldout.append(shard.tokens(stop - tail, stop), 1)
                        tail = 0
                elif destination != DROPPED:
                    (heldout if destination == HELDOUT else train).append(shard.tokens(start, stop), end - first)
            row += len(rows)
            advance(shard.path.stat().st_size)
        return train.record(seq_len), heldout.record(seq_len)
