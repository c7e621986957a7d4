"""Parts into documents, one piece of text at a time, so that memory does not grow with the size of a file.

A document is a file or a record. A text file longer than a piece is cut after a line end between two characters that
are not white space, where no usual tokenizer has a token across the cut, so its tokens do not depend on the cutting.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from crosstrain.corpus.inputs import NotTextError, Part, decode_chunk, not_text, reading
from crosstrain.corpus.parquet import rows
from crosstrain.corpus.records import Advance, gzip_lines, line_number, plain_lines, text_of, zstd_lines

PIECE_CHARACTERS = 1 << 18
_CHUNK = 1 << 18
_SAFE_CUT = re.compile(r"(?s).*\S\n(?=\S)")
_LAST_SPACE = re.compile(r"(?s).*\S(?=\s)")


@dataclass(frozen=True, slots=True)
class Document:
    """The pieces are read once, in order; they may raise NotTextError."""

    pieces: Iterable[str]


def documents_of(part: Part, field: str, advance: Advance) -> Iterator[Document]:
    """The documents of a part, streamed.

    Raises:
        UsageError: the part is not what its name promises; names the file and the line, row or byte.
    """
    with reading(part.path):
        if part.kind == "text":
            yield Document(_cut_pieces(_decoded(part, advance)))
        else:
            for text in _records(part, field, advance):
                yield Document(_cut_pieces([text]))


def _records(part: Part, field: str, advance: Advance) -> Iterator[str]:
    if part.kind == "parquet":
        yield from rows(part.path, field, part.row_group)
        advance(part.bytes)
        return
    if part.kind == "jsonl":
        lines = plain_lines(part.path, part.start, part.end, advance)
    else:
        lines = (gzip_lines if part.kind == "jsonl.gz" else zstd_lines)(part.path, advance)
    number = 0

    def where() -> str:
        return f"{part.path}:{line_number(part.path, part.start) + number}"

    for line in lines:
        number += 1
        if line.strip():
            yield text_of(line, field, where)


def _decoded(part: Part, advance: Advance) -> Iterator[str]:
    """The text of a file, a byte order mark left out."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset = 0
    try:
        with reading(part.path), part.path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                text = decode_chunk(chunk, offset, decoder)
                yield text.removeprefix("\ufeff") if offset == 0 else text
                offset += len(chunk)
                advance(len(chunk))
        if held := decoder.getstate()[0]:
            raise NotTextError(f"invalid UTF-8 at byte {offset - len(held)} (the file ends inside a character)")
    except NotTextError as defect:
        if part.explicit:
            raise not_text(part.path, str(defect)) from None
        raise


def _cut_pieces(chunks: Iterable[str]) -> Iterator[str]:
    held, start = "", 0
    for chunk in chunks:
        held, start = held[start:] + chunk, 0
        while len(held) - start > PIECE_CHARACTERS:
            end = _cut_before(held, start, start + PIECE_CHARACTERS)
            yield held[start:end]
            start = end
    if held[start:]:
        yield held[start:]


def _cut_before(text: str, start: int, limit: int) -> int:
    for pattern in (_SAFE_CUT, _LAST_SPACE):
        if match := pattern.match(text, start, limit):
            return match.end()
    return limit
