"""Records of jsonl files, plain and compressed, streamed line by line."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import zstandard

from crosstrain.errors import UsageError

_CHUNK = 1 << 18

Advance = Callable[[int], None]
"""Told how many more bytes of the input are behind us."""


def plain_lines(path: Path, start: int, end: int, advance: Advance) -> Iterator[bytes]:
    """Lines of a range that begins and ends at line ends."""

    def chunks() -> Iterator[bytes]:
        with path.open("rb") as file:
            file.seek(start)
            left = end - start
            while left and (chunk := file.read(min(_CHUNK, left))):
                left -= len(chunk)
                advance(len(chunk))
                yield chunk

    return _lines(chunks())


def gzip_lines(path: Path, advance: Advance) -> Iterator[bytes]:
    """Lines of a gzip file.

    Raises:
        UsageError: corrupt or cut short.
    """

    def chunks() -> Iterator[bytes]:
        position = 0
        with path.open("rb") as raw, gzip.GzipFile(fileobj=raw) as file:
            while chunk := file.read(_CHUNK):
                advance(raw.tell() - position)
                position = raw.tell()
                yield chunk

    try:
        yield from _lines(chunks())
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _corrupt(path, "gzip", str(error)) from error


def zstd_lines(path: Path, advance: Advance) -> Iterator[bytes]:
    """Lines of a zstd file of one or more frames.

    Raises:
        UsageError: corrupt or cut short.
    """
    try:
        yield from _lines(_zstd_chunks(path, advance))
    except zstandard.ZstdError as error:
        raise _corrupt(path, "zstd", str(error)) from error


def _zstd_chunks(path: Path, advance: Advance) -> Iterator[bytes]:
    # zstandard's stream_reader ends quietly where a file is cut short; a decompressor knows whether its frame ended.
    decompressor = None
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            advance(len(chunk))
            while chunk:
                decompressor = decompressor or zstandard.ZstdDecompressor().decompressobj()
                yield decompressor.decompress(chunk)
                chunk = b""
                if decompressor.eof:
                    chunk = decompressor.unused_data
                    decompressor = None
    if decompressor is not None:
        raise _corrupt(path, "zstd", "the file ends inside a frame")


def _corrupt(path: Path, form: str, why: str) -> UsageError:
    return UsageError(f"{path} is not a sound {form} file: {why}.", "download or compress it again")


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    held: list[bytes] = []
    for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        held.append(first)
        for piece in rest:
            yield b"".join(held)
            held = [piece]
    if any(held):
        yield b"".join(held)


def text_of(line: bytes, field: str, where: Callable[[], str]) -> str:
    """The text of one record; `where` is asked only when it has none.

    Raises:
        UsageError: the line is not a JSON object with a string at `field`.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        why = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise UsageError(f"{where()}: not JSON: {why}.", "every line of a jsonl file is one JSON object") from None
    if not isinstance(record, dict):
        raise UsageError(
            f"{where()}: expected a JSON object, found {type(record).__name__}.",
            "every line of a jsonl file is one JSON object",
        )
    text = record.get(field)
    if not isinstance(text, str):
        found = (
            f"it is {type(text).__name__}" if field in record else f"it has {', '.join(map(repr, record)) or 'none'}"
        )
        raise UsageError(
            f"{where()}: the field {field!r} is not a string: {found}.", "name the text field with --field"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{where()}: the text has half of a surrogate pair, which UTF-8 cannot hold.",
            "remove the escape \\ud800 to \\udfff that has no partner",
        ) from None
    return text


def line_number(path: Path, start: int) -> int:
    """Lines before byte `start`."""
    lines = 0
    with path.open("rb") as file:
        while start and (chunk := file.read(min(_CHUNK, start))):
            start -= len(chunk)
            lines += chunk.count(b"\n")
    return lines
