"""Delta files: what is written is read, any safetensors library reads it, and its size is what the codec promises."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import safetensors

from crosstrain.errors import IntegrityError
from crosstrain.outer.delta import summarize_delta
from crosstrain.outer.encoding import quantize, widen
from crosstrain.storage.delta_file import Codec, DeltaFile, DeltaWriter
from crosstrain.storage.weights_header import Entry

MODEL = [Entry("a", "F32", (30, 40)), Entry("b", "F32", (5,)), Entry("c", "F32", (1 << 20,))]
CODECS: tuple[Codec, ...] = ("fp32", "bf16", "int8", "int4")


def values() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {entry.name: (rng.standard_normal(entry.size) * 1e-3).astype(np.float32) for entry in MODEL}


def write(path: Path, codec: Codec, chunk: int = 1 << 16) -> Path:
    with DeltaWriter(path, MODEL, codec) as writer:
        for name, array in values().items():
            for begin in range(0, array.size, chunk):
                writer.append(name, array[begin : begin + chunk])
    return path


@pytest.mark.parametrize(("codec", "error"), [("fp32", 0.0), ("bf16", 0.003), ("int8", 0.01), ("int4", 0.17)])
def test_what_is_written_is_read(tmp_path: Path, codec: Codec, error: float) -> None:
    with DeltaFile(write(tmp_path / "delta", codec), codec) as file:
        assert file.difference(MODEL) == ""
        for name, expected in values().items():
            found = np.empty(expected.size, np.float32)
            delta = file.tensor(name)
            widen(delta if isinstance(delta, tuple) else delta.reshape(-1), found)
            assert np.linalg.norm(found - expected) <= error * np.linalg.norm(expected)


@pytest.mark.parametrize("codec", CODECS)
def test_the_bytes_do_not_depend_on_the_chunks(tmp_path: Path, codec: Codec) -> None:
    assert write(tmp_path / "one", codec).read_bytes() == write(tmp_path / "other", codec, 1 << 10).read_bytes()


def test_what_append_returns_is_what_is_read(tmp_path: Path) -> None:
    array = values()["c"]
    with DeltaWriter(tmp_path / "delta", MODEL[2:], "int4") as writer:
        written = writer.append("c", array)
    with DeltaFile(tmp_path / "delta", "int4") as file:
        read = file.tensor("c")
        for ours, theirs, again in zip(written, read, quantize(array, "int4"), strict=True):
            np.testing.assert_array_equal(ours, theirs)
            np.testing.assert_array_equal(ours, again)


@pytest.mark.parametrize(("codec", "ratio"), [("fp32", 0.5), ("int8", 1.98), ("int4", 3.9)])
def test_size_against_bf16(tmp_path: Path, codec: Codec, ratio: float) -> None:
    bf16 = write(tmp_path / "bf16", "bf16").stat().st_size
    assert bf16 / write(tmp_path / "delta", codec).stat().st_size == pytest.approx(ratio, rel=0.01)


@pytest.mark.parametrize("codec", CODECS)
def test_pieces_are_the_whole_delta(tmp_path: Path, codec: Codec) -> None:
    with DeltaFile(write(tmp_path / "delta", codec), codec) as file:
        summary = summarize_delta(file.pieces())
        flat = [file.tensor(name) for name in values()]
        assert summary == summarize_delta(flat)
    expected = np.sqrt(sum(float((array.astype(np.float64) ** 2).sum()) for array in values().values()))
    assert summary.norm == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("codec", CODECS)
def test_the_safetensors_library_reads_it(tmp_path: Path, codec: Codec) -> None:
    with safetensors.safe_open(str(write(tmp_path / "delta", codec)), "np") as file:
        expected = {"codec": codec, "codec_version": "1"} if codec in ("int8", "int4") else None
        assert file.metadata() == expected
        names = {"a", "b", "c"} if expected is None else {f"{name}.{part}" for name in "abc" for part in ("q", "scale")}
        assert set(file.keys()) == names


def test_another_codec_or_model_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "delta", "int8")
    with pytest.raises(IntegrityError, match="expected a delta in codec int4, version 1, found one in codec int8"):
        DeltaFile(path, "int4")
    with pytest.raises(IntegrityError, match="expected a delta in bf16, found one in codec int8, version 1"):
        DeltaFile(path, "bf16")
    with DeltaFile(path, "int8") as file:
        assert file.difference(MODEL[:2]) == "expected 4 tensors, found 6"
        assert "expected z.q (I8 [1, 256]), found a.q (I8 [5, 256])" in file.difference([Entry("z", "F32", (3,))])
        renamed = (Entry("z", "F32", MODEL[0].shape), *MODEL[1:])
        assert file.difference(renamed) == "expected z.q (I8 [5, 256]), found a.q (I8 [5, 256])"
