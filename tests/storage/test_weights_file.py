"""The weights file: what is written is what is read, by us and by the safetensors library; damage is named."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from crosstrain.errors import EnvironmentFault, IntegrityError
from crosstrain.storage import weights_file
from crosstrain.storage.weights_file import Entry, WeightsFile, WeightsWriter

BF16 = np.dtype(ml_dtypes.bfloat16)
ENTRIES = (
    Entry("b.weight", "BF16", (3, 5)),
    Entry("a", "F32", (7,)),
    Entry("scalar", "F32", ()),
    Entry("o", "F32", (0, 4)),
)


def values(entries: Sequence[Entry] = ENTRIES, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {entry.name: np.asarray(rng.standard_normal(entry.shape), np.float32) for entry in entries}


def written(path: Path, entries: Sequence[Entry] = ENTRIES, seed: int = 0) -> dict[str, np.ndarray]:
    arrays = values(entries, seed)
    with WeightsWriter(path, entries) as writer:
        for name, array in arrays.items():
            writer.write(name, array)
    return {entry.name: arrays[entry.name].astype(BF16 if entry.dtype == "BF16" else np.float32) for entry in entries}


@pytest.mark.parametrize("private", [False, True])
def test_round_trip(tmp_path: Path, private: bool) -> None:
    path = tmp_path / "weights.safetensors"
    expected = written(path)
    with WeightsFile(path, private=private) as file:
        assert file.entries == ENTRIES
        for name, array in expected.items():
            found = file.array(name)
            assert found.dtype == array.dtype
            assert found.flags.writeable is private
            np.testing.assert_array_equal(found, array, strict=True)
    assert list(tmp_path.iterdir()) == [path]


def test_private_arrays_never_change_the_file(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    expected = written(path)
    WeightsFile(path, private=True).array("a")[:] = 0
    np.testing.assert_array_equal(WeightsFile(path).array("a"), expected["a"])


def test_data_is_aligned_and_bytes_are_reproducible(tmp_path: Path) -> None:
    for length in range(1, 70):
        path = tmp_path / f"{length}"
        written(path, [Entry("n" * length, "F32", (1,))])
        assert (8 + int.from_bytes(path.read_bytes()[:8], "little")) % 64 == 0
    written(tmp_path / "x")
    written(tmp_path / "y")
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()


def test_safetensors_reads_ours(tmp_path: Path) -> None:
    path = tmp_path / "ours.safetensors"
    expected = written(path)
    for name, array in load_file(path).items():
        np.testing.assert_array_equal(array, expected[name], strict=True)
    with WeightsWriter(path, [], {"format": "pt"}):
        pass
    with safe_open(path, "numpy") as opened:
        assert opened.metadata() == {"format": "pt"}
    assert WeightsFile(path).metadata == {"format": "pt"}


@pytest.mark.parametrize("order", [["z", "b", "a", "m"], ["a", "b", "m", "z"]])
def test_we_read_safetensors(tmp_path: Path, order: list[str]) -> None:
    path = tmp_path / "theirs.safetensors"
    arrays = {
        name: np.arange(5 + i, dtype=np.float32).astype([BF16, np.float32][i % 2]) for i, name in enumerate(order)
    }
    save_file(arrays, path, {"format": "np"})
    with WeightsFile(path) as file:
        assert {entry.name for entry in file.entries} == set(order)
        for name, array in arrays.items():
            np.testing.assert_array_equal(file.array(name), array, strict=True)


@pytest.mark.torch
def test_torch_takes_private_arrays_without_a_copy(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "weights"
    expected = written(path)
    file = WeightsFile(path, private=True)
    bits = torch.from_numpy(file.array("b.weight").view(np.uint16)).view(torch.bfloat16)
    np.testing.assert_array_equal(bits.float().numpy(), expected["b.weight"].astype(np.float32))


@pytest.mark.torch
def test_rounding_is_torchs(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    edge = np.array(
        [0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0x7F7F8000, 0x00000001, 0x00008000, 0x80000000], np.uint32
    )
    rng = np.random.default_rng(3)
    source = np.concatenate([edge, rng.integers(0, 2**32, 600_000, np.uint32)]).view(np.float32)
    source = np.concatenate([source[~np.isnan(source)], np.array([np.inf, -np.inf], np.float32)])
    with WeightsWriter(tmp_path / "w", [Entry("w", "BF16", source.shape)]) as writer:
        writer.write("w", source)
    expected = torch.from_numpy(source).bfloat16().view(torch.uint16).numpy()
    np.testing.assert_array_equal(WeightsFile(tmp_path / "w").array("w").view(np.uint16), expected)


def test_nan_and_infinity_stay_what_they_are(tmp_path: Path) -> None:
    quiet, payload = np.array([0x7FC00000, 0xFF800001], np.uint32).view(np.float32)
    with WeightsWriter(tmp_path / "w", [Entry("w", "BF16", (3,))]) as writer:
        writer.write("w", np.array([quiet, payload, -np.inf], np.float32))
    found = WeightsFile(tmp_path / "w").array("w").astype(np.float32)
    assert np.isnan(found[:2]).all()
    assert found[2] == -np.inf


def test_chunks_equal_the_whole(tmp_path: Path) -> None:
    entry = Entry("w", "BF16", (900_001,))
    whole = values([entry])["w"]
    with WeightsWriter(tmp_path / "whole", [entry]) as writer:
        writer.write("w", whole)
    with WeightsWriter(tmp_path / "chunks", [entry]) as writer:
        for begin in range(0, whole.size, 300_001):
            writer.append("w", whole[begin : begin + 300_001])
    with WeightsWriter(tmp_path / "rounded", [entry]) as writer:
        writer.write("w", whole.astype(BF16))
    with WeightsWriter(tmp_path / "strided", [entry]) as writer:
        writer.write("w", np.repeat(whole, 2)[::2])
    assert len({(tmp_path / name).read_bytes() for name in ("whole", "chunks", "rounded", "strided")}) == 1


def test_digest_is_known_when_the_file_is_written_and_flushed_beside_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights_file, "SYNC_BYTES", 1 << 10)
    values = np.arange(3000, dtype=np.float32)
    with WeightsWriter(
        tmp_path / "w", [Entry("a", "BF16", (3000,)), Entry("b", "F32", (3000,))], hashed=True
    ) as writer:
        writer.write("a", values)
        for begin in range(0, 3000, 700):
            writer.append("b", values[begin : begin + 700])
    assert writer.digest == hashlib.sha256((tmp_path / "w").read_bytes()).hexdigest()


def test_misaligned_tensor(tmp_path: Path) -> None:
    entries = [Entry("odd", "BF16", (3,)), Entry("after", "F32", (4,))]
    expected = written(tmp_path / "w", entries)
    assert WeightsFile(tmp_path / "w").array("after").sum() == expected["after"].sum()


def shared_pages() -> int:
    return int(Path("/proc/self/statm").read_text().split()[2])


def test_release_gives_resident_memory_back_and_keeps_the_arrays(tmp_path: Path) -> None:
    entry = Entry("w", "F32", (8 << 20,))
    with WeightsWriter(tmp_path / "w", [entry]) as writer:
        writer.write("w", np.ones(entry.shape, np.float32))
    file = WeightsFile(tmp_path / "w")
    view, before = file.array("w"), shared_pages()
    assert view.sum() == entry.size
    read = shared_pages()
    file.release()
    pages = entry.nbytes // mmap.PAGESIZE
    assert read - before > 0.9 * pages
    assert shared_pages() - before < 0.1 * pages
    assert view.sum() == entry.size
    file.close()
    file.release()


def test_release_keeps_what_was_written_to_a_private_map(tmp_path: Path) -> None:
    written(tmp_path / "w")
    file = WeightsFile(tmp_path / "w", private=True)
    file.array("a")[:] = 5
    file.release()
    assert file.array("a").sum() == 35


def test_views_outlive_the_file(tmp_path: Path) -> None:
    expected = written(tmp_path / "w")
    with WeightsFile(tmp_path / "w") as file:
        view = file.array("a")
    (tmp_path / "w").unlink()
    np.testing.assert_array_equal(view, expected["a"])
    with pytest.raises(ValueError, match="closed"):
        file.array("a")
    with pytest.raises(KeyError):
        file.array("missing")


@pytest.mark.parametrize("name", ["naïve ☃", 'a"b\\c\n', "x" * 5000])
def test_weird_names(tmp_path: Path, name: str) -> None:
    path = tmp_path / "sub dir ☃" / "w 'x'.safetensors"
    path.parent.mkdir()
    expected = written(path, [Entry(name, "F32", (2,))])
    np.testing.assert_array_equal(WeightsFile(path).array(name), expected[name])
    np.testing.assert_array_equal(load_file(path)[name], expected[name])


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ([("a", np.zeros(7, np.float32))], "expected b.weight, found a"),
        ([("b.weight", np.zeros(15, np.float32))], r"expected a whole tensor of shape \(3, 5\), found \(15,\)"),
        ([("b.weight", np.zeros((3, 5), np.float64))], "expected bfloat16 elements, found float64"),
        ([("b.weight", np.zeros((3, 5), np.float32)), ("a", np.zeros(7, BF16))], "found bfloat16"),
        ([("b.weight", np.zeros((3, 5), np.float32))], "expected all 4 tensors, but a has 0 of 7"),
    ],
)
def test_wrong_use_leaves_nothing(tmp_path: Path, calls: list[tuple[str, np.ndarray]], message: str) -> None:
    with pytest.raises(ValueError, match=message), WeightsWriter(tmp_path / "w", ENTRIES) as writer:
        for name, array in calls:
            writer.write(name, array)
    assert list(tmp_path.iterdir()) == []


def test_wrong_appends(tmp_path: Path) -> None:
    writer = WeightsWriter(tmp_path / "w", [Entry("a", "F32", (4,))])
    with pytest.raises(ValueError, match="not open"):
        writer.write("a", np.zeros(4, np.float32))
    with writer:
        writer.append("a", np.zeros(3, np.float32))
        with pytest.raises(ValueError, match="at most 1 elements"):
            writer.append("a", np.zeros(2, np.float32))
        with pytest.raises(ValueError, match="flat chunk"):
            writer.append("a", np.zeros((1, 1), np.float32))
        with pytest.raises(ValueError, match="after 3 elements"):
            writer.write("a", np.zeros(4, np.float32))
        writer.append("a", np.zeros(1, np.float32))
        with pytest.raises(ValueError, match="no more tensors"):
            writer.write("a", np.zeros(4, np.float32))
    for names in (["a", "a"], ["__metadata__"]):
        with pytest.raises(ValueError, match="reserved or given twice"):
            WeightsWriter(tmp_path / "x", [Entry(name, "F32", ()) for name in names])


def test_failure_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "w"
    expected = written(path)
    with pytest.raises(KeyboardInterrupt), WeightsWriter(path, ENTRIES):
        raise KeyboardInterrupt
    np.testing.assert_array_equal(WeightsFile(path).array("a"), expected["a"])
    assert list(tmp_path.iterdir()) == [path]


def test_missing_directory_and_full_disk(tmp_path: Path) -> None:
    with (
        pytest.raises(EnvironmentFault, match="directory does not exist"),
        WeightsWriter(tmp_path / "no" / "w", ENTRIES),
    ):
        pass
    (tmp_path / "w.part").symlink_to("/dev/full")
    with pytest.raises(EnvironmentFault, match="disk is full"), WeightsWriter(tmp_path / "w", ENTRIES):
        pass
    assert list(tmp_path.iterdir()) == []


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "w"
    written(path)
    data = path.read_bytes()
    for length in [*range(len(data)), len(data) + 1]:
        path.write_bytes((data + b"\0")[:length])
        with pytest.raises(IntegrityError, match=r"expected .* found"):
            WeightsFile(path)
