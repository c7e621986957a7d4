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
        ({"a": tensor(shape=[True])}, "a to have dtype"),
        ({"a": tensor(offsets=[-8, 0])}, "a to have dtype"),
        ({"a": tensor(shape=[1 << 63])}, "a to have dtype"),
        ({"a": tensor(shape=[10**4000] * 2000)}, "a to have dtype"),
        ({"a": tensor(shape=[1] * 65)}, "a to have dtype"),
        ({}, "0 bytes of data, found 8"),
    ],
)
def test_damaged_headers(tmp_path: Path, header: Any, message: str) -> None:
    with pytest.raises(IntegrityError, match=message):
        WeightsFile(raw(tmp_path / "w", header, b"\0" * 8))


@pytest.mark.parametrize("text", ["\ud800", "\x1b[2J\n", "n" * 1_000_000])
@pytest.mark.parametrize("place", ["name", "dtype", "fields"])
def test_what_a_file_says_is_repeated_in_few_and_harmless_characters(tmp_path: Path, text: str, place: str) -> None:
    """The sentence goes to terminals, and over HTTP, where half a surrogate pair cannot be encoded."""
    header = {"name": {text: tensor(shape=[3])}, "dtype": {"a": tensor(dtype=text)}, "fields": {"a": text}}[place]
    with pytest.raises(IntegrityError) as raised:
        WeightsFile(raw(tmp_path / "w", header, b"\0" * 8))
    assert raised.value.message.isprintable() and len(raised.value.message) < 1000


def test_a_header_that_no_model_has_is_not_parsed(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match=r"a header of 2 to 8,388,608 bytes in a file of .*, found 8,388,609"):
        WeightsFile(raw(tmp_path / "w", b" " * ((8 << 20) + 1), b"\0" * 8))


def test_unreadable_files(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(IntegrityError, match="cannot be read"):
            WeightsFile(path)
