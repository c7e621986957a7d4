"""Packed files: what goes in comes out to the bit, in bounded memory, and what is not in order is refused before it does harm."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from crosstrain.errors import IntegrityError
from crosstrain.storage.byte_planes import PLANE, PackedFile, pack

HEADER = struct.Struct("<8sIIQ32s")
WIDTHS = (1, 2, 4)


def packed(data: bytes, directory: Path, width: int) -> Path:
    (directory / "raw").write_bytes(data)
    pack(directory / "raw", directory / "packed", width)
    return directory / "packed"


def unpacked(path: Path, limit: int) -> bytes:
    with PackedFile(path, limit) as file:
        file.unpack(path.with_name("again"), durable=False)
    return path.with_name("again").read_bytes()


def bfloat16_noise(size: int) -> bytes:
    """Normal numbers as bfloat16: a plane of noise, and one of few values."""
    values = np.random.default_rng(size).standard_normal(size // 2 + 1).astype(np.float32) * 1e-4
    return (values.view(np.uint32) >> 16).astype("<u2").tobytes()[:size]


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=200), times=st.integers(1, 60), width=st.sampled_from(WIDTHS))
def test_what_goes_in_comes_out(tmp_path_factory: pytest.TempPathFactory, data: bytes, times: int, width: int) -> None:
    directory = tmp_path_factory.getbasetemp()
    assert unpacked(packed(data * times, directory, width), len(data) * times) == data * times


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("over", [-1, 0, 1, 3])
def test_lengths_around_a_chunk(tmp_path: Path, width: int, over: int) -> None:
    data = bfloat16_noise(PLANE * width + over)
    assert unpacked(packed(data, tmp_path, width), len(data)) == data


def test_exponents_are_what_gets_smaller(tmp_path: Path) -> None:
    data = bfloat16_noise(2 << 20)
    as_planes = packed(data, tmp_path, 2).stat().st_size
    assert as_planes < 0.72 * len(data)
    assert as_planes < 0.9 * packed(data, tmp_path, 1).stat().st_size


def test_noise_becomes_larger_by_header_and_table_alone(tmp_path: Path) -> None:
    data = np.random.default_rng(0).bytes(3 * PLANE + 5)
    assert packed(data, tmp_path, 1).stat().st_size == len(data) + HEADER.size + 4 * 4


def test_header_says_what_is_inside(tmp_path: Path) -> None:
    data = bfloat16_noise(1000)
    with PackedFile(packed(data, tmp_path, 2), len(data)) as file:
        assert (file.size, file.digest) == (1000, hashlib.sha256(data).hexdigest())


def _cut(data: bytes) -> bytes:
    return data[:-1]


def _cut_in_the_header(data: bytes) -> bytes:
    return data[:20]


def _cut_in_the_table(data: bytes) -> bytes:
    return data[: HEADER.size + 3]


def _longer(data: bytes) -> bytes:
    return data + b"x"


def _with(data: bytes, **changed: object) -> bytes:
    fields = dict(zip(("magic", "version", "width", "size", "sha"), HEADER.unpack(data[: HEADER.size]), strict=True))
    return HEADER.pack(*(fields | changed).values()) + data[HEADER.size :]


def _other_magic(data: bytes) -> bytes:
    return _with(data, magic=b"SOMETHIN")


def _later_version(data: bytes) -> bytes:
    return _with(data, version=2)


def _width_of_three(data: bytes) -> bytes:
    return _with(data, width=3)


def _no_width(data: bytes) -> bytes:
    return _with(data, width=0)


def _absurd_size(data: bytes) -> bytes:
    return _with(data, size=2**63)


def _a_byte_more(data: bytes) -> bytes:
    return _with(data, size=1001)


def _a_byte_less(data: bytes) -> bytes:
    return _with(data, size=999)


def _other_digest(data: bytes) -> bytes:
    return _with(data, sha=b"\1" * 32)


def _flipped_in_the_noise(data: bytes) -> bytes:
    at = HEADER.size + 8 + 10
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def _flipped_in_a_frame(data: bytes) -> bytes:
    return data[:-20] + bytes([data[-20] ^ 0xFF]) + data[-19:]


def _frame(plane: bytes) -> Callable[[bytes], bytes]:
    """Puts a frame in the place of the second plane."""

    def change(data: bytes) -> bytes:
        first = struct.unpack("<I", data[HEADER.size : HEADER.size + 4])[0]
        table = struct.pack("<II", first, len(plane))
        return data[: HEADER.size] + table + data[HEADER.size + 8 : HEADER.size + 8 + first] + plane

    return change


def _frame_without_size() -> bytes:
    writer = zstandard.ZstdCompressor().compressobj()
    return writer.compress(bytes(500)) + writer.flush()


BOMB = zstandard.ZstdCompressor().compress(bytes(1 << 26))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_cut, "not a whole packed file"),
        (_cut_in_the_header, "expected CTPLANES and a header"),
        (_cut_in_the_table, "expected a table of 2 planes"),
        (_longer, "not a whole packed file"),
        (_other_magic, "expected CTPLANES"),
        (_later_version, "version 2"),
        (_width_of_three, "elements of 3"),
        (_no_width, "elements of 0"),
        (_absurd_size, "expected one of at most 1,000"),
        (_a_byte_more, "expected one of at most 1,000"),
        (_a_byte_less, "expected a plane of 499 bytes"),
        (_other_digest, "expected 1,000 bytes of SHA-256 0101"),
        (_flipped_in_the_noise, "expected 1,000 bytes of SHA-256"),
        (_flipped_in_a_frame, "not a whole packed file"),
        (_frame(BOMB), "expected a plane of 500 bytes, found 67,108,864"),
        (_frame(_frame_without_size()), "expected a plane of 500 bytes, found -1"),
        (_frame(zstandard.ZstdCompressor().compress(bytes(500)) + b"x"), "unused data"),
        (_frame(zstandard.ZstdCompressor().compress(bytes(500))[:-1]), "not a whole packed file"),
        (_frame(b"no frame"), "not a whole packed file"),
        (_frame(b""), "not a whole packed file"),
    ],
)
def test_what_is_not_in_order_is_refused_and_leaves_nothing(
    tmp_path: Path, damage: Callable[[bytes], bytes], reason: str
) -> None:
    path = packed(bfloat16_noise(1000), tmp_path, 2)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(IntegrityError, match=reason):
        unpacked(path, 1000)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["packed", "raw"]


@settings(max_examples=150, deadline=None)
@given(at=st.integers(0, 10**6), value=st.integers(1, 255))
def test_no_changed_byte_goes_unnoticed(tmp_path_factory: pytest.TempPathFactory, at: int, value: int) -> None:
    directory = tmp_path_factory.getbasetemp()
    raw = bfloat16_noise(600)
    path = packed(raw, directory, 2)
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= value
    path.write_bytes(data)
    try:
        assert unpacked(path, 600) == raw  # a bit of a frame's header that means nothing
    except IntegrityError:
        assert not path.with_name("again.part").exists()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match=r"Expected a packed file at .*nothing"):
        PackedFile(tmp_path / "nothing", 10)
