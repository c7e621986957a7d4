"""The files of a merge, which threads write while the next part is computed."""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from crosstrain.config import WireSection
from crosstrain.coordinator import publisher
from crosstrain.domain.generation import GenerationRecord
from crosstrain.domain.ids import Digest, Generation, Instant
from crosstrain.errors import EnvironmentFault
from crosstrain.outer.encoding import BF16
from crosstrain.outer.outer_optimizer import OuterHyperparameters
from crosstrain.outer.weighted_merge import Merged, Workspace, merge_tensor, weigh
from crosstrain.storage.delta_file import DeltaWriter
from crosstrain.storage.deltas import Deltas
from crosstrain.storage.object_store import LocalObjectStore
from crosstrain.storage.weights_file import Entry, WeightsFile, WeightsWriter

SIZES = (3, 0, 1_300_000, 7, 0, 1 << 19, 5, 3_000_000, 1)
"""Below a chunk of the merge, of several, of exactly one, and none."""
MODEL = [Entry(f"t{number}", "F32", (size,)) for number, size in enumerate(SIZES)]
TOKENS = (3, 1)
HYPER = OuterHyperparameters(0.7, 0.9)


class Merge:
    """A merge of two deltas whose inputs are in memory."""

    def __init__(self, directory: Path, wire: Literal["bf16", "fp32"] = "bf16", *, first: bool = False) -> None:
        rng = np.random.default_rng(0)
        self._store = LocalObjectStore(directory / "objects")
        self._deltas = Deltas(self._store, "bf16", "none", directory / "scratch")
        self.weights, momentum, *self.changes = (
            [rng.standard_normal(size).astype(np.float32) for size in SIZES] for _ in range(4)
        )
        self.momentum = None if first else momentum
        kept = None if first else self._weights(directory, momentum)
        master = self._weights(directory, self.weights)
        parent = GenerationRecord(Generation(1), Generation(0), master, master, kept, 1, 1, 0.7, 0.9, 2, Instant(0))
        deltas = tuple(self._delta(directory, arrays) for arrays in self.changes)
        self._recipe = publisher.Recipe(parent, deltas, TOKENS, HYPER, WireSection(weights=wire))

    def run(self, work: Path) -> dict[str, publisher.Made]:
        return publisher.merge(self._store, self._deltas, self._recipe, work)

    def _weights(self, directory: Path, arrays: list[np.ndarray]) -> Digest:
        with WeightsWriter(directory / "file", MODEL) as writer:
            for entry, array in zip(MODEL, arrays, strict=True):
                writer.write(entry.name, array)
        return self._store.adopt(directory / "file")

    def _delta(self, directory: Path, arrays: list[np.ndarray]) -> Digest:
        with DeltaWriter(directory / "file", MODEL, "bf16") as writer:
            for entry, array in zip(MODEL, arrays, strict=True):
                writer.append(entry.name, array)
        return self._store.adopt(directory / "file")


@pytest.mark.parametrize("wire", ["bf16", "fp32"])
@pytest.mark.parametrize("first", [False, True])
def test_every_tensor_is_in_its_place_whatever_its_size(
    fast_tmp: Path, wire: Literal["bf16", "fp32"], first: bool
) -> None:
    merge = Merge(fast_tmp, wire, first=first)
    made = merge.run(fast_tmp / "work")
    assert list(made) == ["master", "momentum", "weights"][: 3 if wire == "bf16" else 2]
    for path, digest in made.values():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    with ExitStack() as opened:
        files = [opened.enter_context(WeightsFile(path)) for path, _ in made.values()]
        for number, (entry, size) in enumerate(zip(MODEL, SIZES, strict=True)):
            into = Merged(np.empty(size, np.float32), np.empty(size, np.float32), np.empty(size, BF16))
            deltas = [change[number].astype(BF16) for change in merge.changes]
            momentum = merge.momentum and merge.momentum[number]
            for _ in merge_tensor(merge.weights[number], momentum, deltas, weigh(TOKENS), HYPER, Workspace(), into):
                pass
            for file, expected in zip(files, into, strict=False):
                assert file.array(entry.name).tobytes() == expected.tobytes()


def test_a_disk_that_is_full_in_the_middle_leaves_nothing_and_the_merge_can_be_made_again(
    fast_tmp: Path, small_disk: Path
) -> None:
    merge = Merge(fast_tmp)
    expected = {name: made.digest for name, made in merge.run(fast_tmp / "work").items()}
    ballast, work = small_disk / "ballast", small_disk / "work"
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(small_disk).free - (12 << 20))
    with pytest.raises(EnvironmentFault, match="the disk is full"):
        merge.run(work)
    assert list(work.iterdir()) == []
    ballast.unlink()
    assert {name: made.digest for name, made in merge.run(work).items()} == expected
