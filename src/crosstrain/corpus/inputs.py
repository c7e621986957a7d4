"""Inputs as named on the command line, cut into parts that can be read alone.

A part is a whole text file, a whole compressed file, a range of lines of a jsonl file, or a row group of a parquet file.
Parts are in the order of the inputs, and the files of a directory in the order of their relative paths, so the order of
documents depends on nothing else.
"""

from __future__ import annotations

import codecs
import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from crosstrain.corpus.parquet import row_groups
from crosstrain.errors import UsageError

Kind = Literal["text", "jsonl", "jsonl.gz", "jsonl.zst", "parquet"]

_SNIFF_BYTES = 1 << 16
_CHUNK = 1 << 20


class NotTextError(Exception):
    """The bytes of a file are not text. A file that was found in a directory is then left out."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one reader reads from start to end.

    Attributes:
        source: number of the input it belongs to.
        explicit: whether the file itself was named, so that it may not be skipped.
        start, end: the bytes that its content depends on.
        row_group: parquet only.
    """

    path: Path
    kind: Kind
    source: int
    explicit: bool
    start: int
    end: int
    row_group: int = 0

    @property
    def bytes(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Source:
    """One input: its name without its place, its files, and how many more of a directory are not text."""

    name: str
    files: tuple[Path, ...]
    explicit: bool
    skipped: int


def find_sources(inputs: Sequence[Path], ignore: Path) -> list[Source]:
    """Every input's files. `ignore` is the output directory, which an input directory may contain.

    Raises:
        UsageError: an input is missing, empty, unreadable, or not text.
    """
    if not inputs:
        raise UsageError("A corpus needs at least one input.", "name text files, directories, jsonl or parquet files")
    return [_find_source(path, ignore.resolve()) for path in inputs]


def _find_source(path: Path, ignore: Path) -> Source:
    name = _printable(path.resolve().name or "root")
    with reading(path):
        if path.is_dir():
            files = sorted(_walk(path, ignore), key=lambda file: file.relative_to(path).as_posix())
            texts = tuple(file for file in files if kind_of(file) != "text" or _defect(file) is None)
            return Source(name, texts, explicit=False, skipped=len(files) - len(texts))
        if path.is_file():
            _check_explicit(path)
            return Source(name, (path,), explicit=True, skipped=0)
    found = "is neither a file nor a directory" if path.exists() else "does not exist"
    raise UsageError(f"The input {path} {found}.", "check the path; patterns such as *.txt are the shell's to expand")


def cut_sources(sources: Sequence[Source], field: str, shard_bytes: int | None) -> tuple[list[Part], int]:
    """The parts of all sources in order, and the size of a unit of work, which depends on the inputs alone.

    Raises:
        UsageError: a file cannot be read, or a parquet file has no text column `field`.
    """
    if shard_bytes is None:
        total = sum(file.stat().st_size for source in sources for file in source.files)
        shard_bytes = min(max(total >> 10, 1 << 20), 1 << 26)
    parts: list[Part] = []
    for number, source in enumerate(sources):
        for file in source.files:
            with reading(file):
                parts += _cut(file, number, source.explicit, field, shard_bytes)
    return parts, shard_bytes


def kind_of(path: Path) -> Kind:
    """By the file's name; whatever is not a known container of records is one document."""
    name = path.name.lower()
    for ending in ("jsonl", "jsonl.gz", "jsonl.zst", "parquet"):
        if name.endswith(f".{ending}"):
            return ending
    return "text"


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns a failed read of `path` into a message.

    Raises:
        UsageError: the operating system refused.
    """
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"The input {path} cannot be read: {error.strerror or error}.", "check its permissions"
        ) from error


def _walk(root: Path, ignore: Path) -> Iterator[Path]:
    def stop(error: OSError) -> None:
        raise error

    for folder, folders, files in os.walk(root, onerror=stop):
        here = Path(folder)
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and name != "__pycache__" and (here / name).resolve() != ignore
        ]
        # A directory also holds sockets, pipes and links to nowhere.
        yield from (here / name for name in files if not name.startswith(".") and (here / name).is_file())


def _cut(path: Path, source: int, explicit: bool, field: str, shard_bytes: int) -> Iterator[Part]:
    size = path.stat().st_size
    kind = kind_of(path)
    if kind == "parquet":
        for number, (start, end) in enumerate(row_groups(path, field)):
            yield Part(path, kind, source, explicit, start, end, row_group=number)
    elif kind == "jsonl":
        for start, end in _line_ranges(path, size, shard_bytes):
            yield Part(path, kind, source, explicit, start, end)
    elif size:
        yield Part(path, kind, source, explicit, 0, size)


def _line_ranges(path: Path, size: int, target: int) -> Iterator[tuple[int, int]]:
    with path.open("rb") as file:
        start = 0
        while start < size:
            end = _after_newline(file.fileno(), start + target - 1, size)
            yield start, end
            start = end


def _after_newline(descriptor: int, position: int, size: int) -> int:
    while position < size:
        chunk = os.pread(descriptor, _CHUNK, position)
        found = chunk.find(b"\n")
        if found >= 0:
            return position + found + 1
        if not chunk:
            break
        position += len(chunk)
    return size


def _check_explicit(path: Path) -> None:
    if path.stat().st_size == 0:
        raise UsageError(f"The input {path} is empty.", "leave it out")
    if kind_of(path) == "text" and (defect := _defect(path)):
        raise not_text(path, defect)


def not_text(path: Path, defect: str) -> UsageError:
    """The error for a named file that is not text."""
    return UsageError(
        f"The input {path} is not UTF-8 text: {defect}.",
        "convert it first (iconv -t UTF-8), or leave it out; of compressed files only .jsonl.gz and .jsonl.zst are read",
    )


def no_text() -> UsageError:
    """The error for inputs that are all empty."""
    return UsageError("The inputs hold no documents with text.", "name files or directories that do")


def _defect(path: Path) -> str | None:
    """What shows in the first 64 KiB that a file is not text."""
    with path.open("rb") as file:
        head = file.read(_SNIFF_BYTES)
    try:
        decode_chunk(head, 0, codecs.getincrementaldecoder("utf-8")())
    except NotTextError as defect:
        return str(defect)
    return None


def decode_chunk(chunk: bytes, offset: int, decoder: codecs.IncrementalDecoder) -> str:
    """The text of the bytes at `offset` of a file; a character that is cut by the end waits in the decoder.

    Raises:
        NotTextError: names the first wrong byte.
    """
    if (nul := chunk.find(b"\0")) >= 0:
        raise NotTextError(f"a NUL byte at byte {offset + nul}")
    held = len(decoder.getstate()[0])
    try:
        return decoder.decode(chunk)
    except UnicodeDecodeError as error:
        raise NotTextError(f"invalid UTF-8 at byte {offset - held + error.start} ({error.reason})") from None


def _printable(name: str) -> str:
    """Names that are not UTF-8 do not fit into JSON."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
