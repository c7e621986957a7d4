"""Shards: the unit of parallel work and of restart. One shard is the tokens of a few parts and a table of their documents.

A shard file is named by the digest of everything that decides its content (`shard_key`), so an interrupted build finds
what it finished, and changed inputs or options never meet old shards. Layout:

    tokens of every document, each followed by the end-of-text token
    one DOCUMENT row per document
    footer: JSON, then its length as 8 little-endian bytes
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from crosstrain.corpus.documents import Document, documents_of
from crosstrain.corpus.durable import replacing
from crosstrain.corpus.inputs import NotTextError, Part, reading
from crosstrain.corpus.records import Advance
from crosstrain.corpus.tokenizer import Encoder, TokenizerFile
from crosstrain.errors import IntegrityError

_VERSION = 1
_CHUNK = 1 << 20

Rows = npt.NDArray[np.void]
DOCUMENT = np.dtype([("high", "<u8"), ("low", "<u8"), ("tokens", "<u8"), ("bytes", "<u8"), ("source", "<u4")])
"""`high` and `low`: the first 16 bytes of SHA-256 over the text in UTF-8, big-endian. `tokens`: without end of text."""
_ROW = struct.Struct("<QQQQI")


@dataclass(frozen=True, slots=True)
class Shard:
    """A finished shard.

    Attributes:
        documents: rows of the table.
        tokens: with the end-of-text tokens.
        empty, skipped: per source, documents without text and files that are not text.
    """

    documents: int
    tokens: int
    sha256: str
    empty: dict[str, int]
    skipped: dict[str, int]


def group_parts(parts: Sequence[Part], shard_bytes: int) -> list[tuple[Part, ...]]:
    """Consecutive parts together up to `shard_bytes`; a larger part stays alone."""
    groups: list[list[Part]] = []
    room = 0
    for part in parts:
        if not groups or part.bytes > room:
            groups.append([])
            room = shard_bytes
        groups[-1].append(part)
        room -= part.bytes
    return [tuple(group) for group in groups]


def digest_parts(parts: Sequence[Part]) -> str:
    """Digest of the bytes that the parts are read from, of their kinds, and of which input each belongs to.

    Raises:
        UsageError: a file cannot be read.
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{part.kind} {part.source} {part.explicit} {part.bytes}\n".encode())
        with reading(part.path), part.path.open("rb") as file:
            file.seek(part.start)
            digest.update(_digest(file, part.bytes).encode())
    return digest.hexdigest()


def shard_key(content: str, tokenizer: TokenizerFile, field: str) -> str:
    """Name of the shard whose parts have the digest `content`."""
    facts = [_VERSION, content, tokenizer.sha256, tokenizer.eot, tokenizer.dtype, field]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def encode_shard(
    parts: Sequence[Part], field: str, eot: int, dtype: str, encoder: Encoder, path: Path, advance: Advance
) -> None:
    """Tokenizes the parts into a shard file at `path`.

    Raises:
        UsageError: an input is not what its name promises.
        EnvironmentFault: the shard cannot be written.
    """
    with replacing(path) as output:
        writer = _ShardWriter(output, eot, dtype, encoder)
        for part in parts:
            for document in documents_of(part, field, advance):
                writer.add(document, part.source)
        writer.finish()


class _ShardWriter:
    def __init__(self, output: BinaryIO, eot: int, dtype: str, encoder: Encoder) -> None:
        self._output = output
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._eot = np.array([eot], self._dtype).tobytes()
        self._encoder = encoder
        self._rows = bytearray()
        self._empty: dict[str, int] = {}
        self._skipped: dict[str, int] = {}

    def add(self, document: Document, source: int) -> None:
        start = self._output.tell()
        digest = hashlib.sha256()
        size = 0
        has_text = False
        try:
            for piece in document.pieces:
                content = piece.encode()
                digest.update(content)
                size += len(content)
                has_text = has_text or not piece.isspace()
                self._output.write(np.array(self._encoder.encode(piece), self._dtype).tobytes())
        except NotTextError:
            self._forget(start, self._skipped, source)
            return
        tokens = (self._output.tell() - start) // self._dtype.itemsize
        if not has_text or not tokens:
            self._forget(start, self._empty, source)
            return
        self._output.write(self._eot)
        name = digest.digest()
        high, low = int.from_bytes(name[:8], "big"), int.from_bytes(name[8:16], "big")
        self._rows += _ROW.pack(high, low, tokens, size, source)

    def _forget(self, start: int, count: dict[str, int], source: int) -> None:
        self._output.seek(start)
        self._output.truncate()
        count[str(source)] = count.get(str(source), 0) + 1

    def finish(self) -> None:
        tokens = self._output.tell() // self._dtype.itemsize
        documents = len(self._rows) // _ROW.size
        self._output.write(self._rows)
        body = self._output.tell()
        self._output.seek(0)
        digest = _digest(self._output, body)
        footer = json.dumps(asdict(Shard(documents, tokens, digest, self._empty, self._skipped))).encode()
        self._output.write(footer + len(footer).to_bytes(8, "little"))


class ShardFile:
    """Reads one shard file.

    Raises:
        IntegrityError: it is not what was written.
    """

    def __init__(self, path: Path, dtype: str) -> None:
        self.path = path
        self._dtype = np.dtype(dtype).newbyteorder("<")
        try:
            with path.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - 8))
                length = int.from_bytes(file.read(8), "little")
                file.seek(size - 8 - length)
                self.shard = Shard(**json.loads(file.read(length)))
        except (OSError, ValueError, TypeError) as error:
            raise self._damaged() from error
        self._body = size - 8 - length
        if self._body != self.shard.tokens * self._dtype.itemsize + self.shard.documents * DOCUMENT.itemsize:
            raise self._damaged()

    def documents(self) -> Rows:
        rows: Rows = np.fromfile(
            self.path, DOCUMENT, self.shard.documents, offset=self.shard.tokens * self._dtype.itemsize
        )
        return rows

    def tokens(self, start: int, end: int) -> Iterator[npt.NDArray[Any]]:
        """Tokens `start` to `end`, a bounded number at a time."""
        while start < end:
            count = min(_CHUNK, end - start)
            yield np.fromfile(self.path, self._dtype, count, offset=start * self._dtype.itemsize)
            start += count

    def check(self) -> None:
        """Compares the content with its digest.

        Raises:
            IntegrityError: they differ.
        """
        with self.path.open("rb") as file:
            if _digest(file, self._body) != self.shard.sha256:
                raise self._damaged()

    def _damaged(self) -> IntegrityError:
        return IntegrityError(f"The unfinished build's file {self.path} is damaged.", "run the same command again")


def is_sound(path: Path, dtype: str) -> bool:
    """Whether the shard at `path` is what was written."""
    try:
        ShardFile(path, dtype).check()
    except IntegrityError:
        return False
    return True


def _digest(file: BinaryIO, length: int) -> str:
    digest = hashlib.sha256()
    while length and (chunk := file.read(min(_CHUNK, length))):
        length -= len(chunk)
        digest.update(chunk)
    return digest.hexdigest()
