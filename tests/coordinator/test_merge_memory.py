"""Merging a model that is larger than what the coordinator may take of its machine."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from crosstrain.config import WireSection
from crosstrain.coordinator import publisher
from crosstrain.domain.generation import GenerationRecord
from crosstrain.domain.ids import Digest, Generation, Instant
from crosstrain.outer.delta import summarize_delta
from crosstrain.outer.outer_optimizer import OuterHyperparameters
from crosstrain.storage.delta_file import Codec, DeltaFile, DeltaWriter
from crosstrain.storage.deltas import Deltas
from crosstrain.storage.object_store import LocalObjectStore
from crosstrain.storage.weights_file import DType, Entry, WeightsFile, WeightsWriter

PARAMS = 10_000_000
MODEL = [Entry("large", "F32", (4000, 2375)), Entry("rest", "F32", (500_000,))]
PIECE = 1 << 18


def resident_mib(field: str) -> int:
    """VmRSS or VmHWM, the largest that VmRSS was since it was last reset."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) // 1024


def weights(store: LocalObjectStore, path: Path, dtype: DType = "F32") -> Digest:
    with WeightsWriter(path, [Entry(entry.name, dtype, entry.shape) for entry in MODEL]) as writer:
        for entry in MODEL:
            for begin in range(0, entry.size, PIECE):
                writer.append(entry.name, np.full(min(PIECE, entry.size - begin), 0.5, np.float32))
    return store.adopt(path)


def delta(store: LocalObjectStore, path: Path, codec: Codec, value: float) -> Digest:
    with DeltaWriter(path, MODEL, codec) as writer:
        for entry in MODEL:
            for begin in range(0, entry.size, PIECE):
                writer.append(entry.name, np.full(min(PIECE, entry.size - begin), value, np.float32))
    return store.adopt(path)


def test_pages_that_were_read_do_not_stay_in_memory(fast_tmp: Path) -> None:
    store = LocalObjectStore(fast_tmp / "objects")
    master, momentum = weights(store, fast_tmp / "master"), weights(store, fast_tmp / "momentum")
    deltas = tuple(delta(store, fast_tmp / "delta", "bf16", value) for value in (0.25, 0.5))
    parent = GenerationRecord(Generation(1), Generation(0), master, master, momentum, 1, 1, 0.7, 0.9, 2, Instant(0))
    hyper, wire = OuterHyperparameters(0.5, 0.5), WireSection()
    Path("/proc/self/clear_refs").write_text("5")
    before = resident_mib("VmRSS")
    opened = Deltas(store, wire.delta, wire.compress, fast_tmp / "scratch")
    made = publisher.merge(store, opened, publisher.Recipe(parent, deltas, (3, 1), hyper, wire), fast_tmp / "work")
    taken = resident_mib("VmHWM") - before
    read_mib = PARAMS * 12 >> 20
    assert taken < 85, f"the merge took {taken} MiB to read {read_mib}"
    with WeightsFile(made["weights"].path) as file:
        assert [(entry.name, entry.dtype) for entry in file.entries] == [("large", "BF16"), ("rest", "BF16")]
        for entry in file.entries:
            found = file.array(entry.name).reshape(-1)
            np.testing.assert_allclose(found[[0, -1]].astype(np.float32), 0.5 + 0.5 * (0.25 + 0.156) + 0.156, rtol=0.02)


def test_looking_at_generation_0_and_rounding_it_do_not_keep_the_model_in_memory(fast_tmp: Path) -> None:
    store = LocalObjectStore(fast_tmp / "objects")
    entries = [Entry("large", "F32", (30_000_000,))]
    with WeightsWriter(fast_tmp / "master", entries) as writer:
        for begin in range(0, entries[0].size, PIECE):
            writer.append("large", np.full(min(PIECE, entries[0].size - begin), 0.5, np.float32))
    master = store.adopt(fast_tmp / "master")
    Path("/proc/self/clear_refs").write_text("5")
    before = resident_mib("VmRSS")
    with DeltaFile(store.path(master), "fp32") as looked_at:
        assert summarize_delta(looked_at.pieces()).finite
    wire = publisher.rounded(store, master, fast_tmp / "work")
    taken = resident_mib("VmHWM") - before
    assert taken < 60, f"rounding took {taken} MiB to read {entries[0].size * 4 >> 20}"
    with WeightsFile(store.path(wire)) as file:
        assert file.array("large")[-1] == 0.5
