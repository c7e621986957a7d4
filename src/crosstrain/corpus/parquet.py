"""Parquet files, one row group at a time. pyarrow is imported only when a parquet file is read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crosstrain.errors import UsageError

_ROWS = 1024


def row_groups(path: Path, field: str) -> list[tuple[int, int]]:
    """Where the column `field` lies in the file, per row group: (first byte, end).

    Raises:
        UsageError: pyarrow is not installed, the file is corrupt, or it has no text column of that name.
    """
    with _opened(path) as file:
        column = _column_of(path, file, field)
        chunks = [file.metadata.row_group(number).column(column) for number in range(file.metadata.num_row_groups)]
        return [_extent(chunk) for chunk in chunks]


def rows(path: Path, field: str, row_group: int) -> Iterator[str]:
    """The values of a row group.

    Raises:
        UsageError: the file is corrupt or a value is null.
    """
    with _opened(path) as file:
        number = sum(file.metadata.row_group(before).num_rows for before in range(row_group))
        for batch in file.iter_batches(batch_size=_ROWS, row_groups=[row_group], columns=[field]):
            for value in batch.column(0).to_pylist():
                number += 1
                if value is None:
                    raise UsageError(f"{path}, row {number}: the column {field!r} is null.", "remove the row")
                yield value


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError(
            f"{path} is a parquet file, and pyarrow is not installed.", "pip install 'crosstrain[parquet]'"
        ) from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            yield file
    except (pyarrow.ArrowException, UnicodeDecodeError, OSError) as error:
        # pyarrow reports corrupt pages as OSError without an errno, and real I/O errors with one.
        if isinstance(error, OSError) and error.errno:
            raise
        raise UsageError(f"{path} is not a sound parquet file: {error}.", "download or write it again") from error


def _column_of(path: Path, file: Any, field: str) -> int:
    names = file.schema_arrow.names
    if field not in names:
        raise UsageError(
            f"{path} has no column {field!r}; it has {', '.join(map(repr, names))}.",
            "name the text column with --field",
        )
    kind = str(file.schema_arrow.field(field).type)
    if kind not in ("string", "large_string", "string_view", "dictionary<values=string, indices=int32, ordered=0>"):
        raise UsageError(
            f"{path}: the column {field!r} holds {kind}, not strings.", "name the text column with --field"
        )
    leaves = [file.schema.column(index).path for index in range(len(file.schema))]
    return leaves.index(field)


def _extent(chunk: Any) -> tuple[int, int]:
    start = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    return start, start + chunk.total_compressed_size
