"""Damaged headers of weights files are named, with what was expected and what was found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crosstrain.errors import IntegrityError
from crosstrain.storage.weights_file import WeightsFile


def raw(path: Path, header: Any, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def tensor(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"{not json", "a header of JSON"),
        (b"\xff\xff", "a header of JSON"),
        (b"[" * 100_000, "a header of JSON"),
        (b'{"a": 1, "a": 2}', "a name given twice"),
        ([], "a JSON object"),
        ({"__metadata__": 3}, "a JSON object"),
        ({"a": 3}, "a to have dtype"),
        ({"a": tensor(dtype=5)}, "a to have dtype"),
        ({"a": tensor(shape=[-2])}, "a to have dtype"),
        ({"a": tensor(shape=[2.0])}, "a to have dtype"),
        ({"a": tensor(offsets=[0])}, "a to have dtype"),
        ({"a": tensor(dtype="I64", shape=[1])}, "one of F32, BF16, I8, U8, found I64"),
        ({"a": tensor(shape=[3])}, "at bytes 0 to 12, found 0 to 8"),
        ({"a": tensor(offsets=[4, 12])}, "at bytes 0 to 8, found 4 to 12"),
        ({"a": tensor(), "b": tensor()}, "at bytes 8 to 16, found 0 to 8"),
        ({}, "0 bytes of data, found 8"),
    ],
)
def test_damaged_headers(tmp_path: Path, header: Any, message: str) -> None:
    with pytest.raises(IntegrityError, match=message):
        WeightsFile(raw(tmp_path / "w", header, b"\0" * 8))


def test_unreadable_files(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(IntegrityError, match="cannot be read"):
            WeightsFile(path)
