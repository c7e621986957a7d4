"""Weights on their way to a site: as they are or packed, whole or not at all, and never twice over the line."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from crosstrain.domain.ids import Digest
from crosstrain.errors import IntegrityError
from crosstrain.site.adoption import fetch
from crosstrain.site.spool import Spool
from crosstrain.storage.byte_planes import pack
from crosstrain.storage.object_store import LocalObjectStore
from crosstrain.wire.blobs import Progress

RAW = np.random.default_rng(0).standard_normal(1000).astype(np.float32).tobytes()


class Line:
    """Blobs straight from an object store."""

    def __init__(self, objects: LocalObjectStore) -> None:
        self._objects = objects
        self.fetched: list[Digest] = []

    def download(self, digest: Digest, target: Path, _deadline_s: float, _progress: Progress) -> None:
        self.fetched.append(digest)
        shutil.copy(self._objects.path(digest), target)

    def upload(self, _path: Path, digest: Digest, _deadline_s: float, _progress: Progress) -> None:
        raise AssertionError(f"{digest} is not to be sent")

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def objects(tmp_path: Path) -> LocalObjectStore:
    return LocalObjectStore(tmp_path / "objects")


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "site", "spec")


def put(objects: LocalObjectStore, data: bytes, packed: bool) -> Digest:
    path = objects.directory.parent / "made"
    path.write_bytes(data)
    if packed:
        pack(path, path, 4)
    return objects.adopt(path)


def names(spool: Spool) -> set[str]:
    return {path.name for path in spool.directory.iterdir()}


def show(_done: int, _total: int) -> None:
    """Nobody looks."""


def test_weights_that_travel_as_they_are(objects: LocalObjectStore, spool: Spool) -> None:
    line, weights = Line(objects), put(objects, RAW, packed=False)
    for _ in range(2):
        assert fetch(line, spool, weights, None, 1.0, show).read_bytes() == RAW
    assert line.fetched == [weights]


def test_packed_weights_are_unpacked_and_nothing_is_left_of_them(objects: LocalObjectStore, spool: Spool) -> None:
    line, weights, packed = Line(objects), put(objects, RAW, packed=False), put(objects, RAW, packed=True)
    for _ in range(2):
        assert fetch(line, spool, weights, packed, 1.0, show).read_bytes() == RAW
    assert line.fetched == [packed]
    assert names(spool) == {spool.base(weights).name}


def test_a_session_that_was_killed_while_it_unpacked_is_followed_without_another_download(
    objects: LocalObjectStore, spool: Spool
) -> None:
    line, weights, packed = Line(objects), put(objects, RAW, packed=False), put(objects, RAW, packed=True)
    shutil.copy(objects.path(packed), spool.packed_base(weights))
    spool.base(weights).with_suffix(".safetensors.part").write_bytes(RAW[:10])
    assert fetch(line, spool, weights, packed, 1.0, show).read_bytes() == RAW
    assert line.fetched == []
    assert names(spool) == {spool.base(weights).name}


def test_a_session_that_was_killed_before_it_removed_them(objects: LocalObjectStore, spool: Spool) -> None:
    weights, packed = put(objects, RAW, packed=False), put(objects, RAW, packed=True)
    shutil.copy(objects.path(weights), spool.base(weights))
    shutil.copy(objects.path(packed), spool.packed_base(weights))
    fetch(Line(objects), spool, weights, packed, 1.0, show)
    assert names(spool) == {spool.base(weights).name}


def test_weights_of_something_else_are_refused_and_fetched_again(objects: LocalObjectStore, spool: Spool) -> None:
    line, weights = Line(objects), put(objects, RAW, packed=False)
    other, packed = put(objects, RAW[::-1], packed=True), put(objects, RAW, packed=True)
    with pytest.raises(IntegrityError, match=f"expected the weights {weights} packed"):
        fetch(line, spool, weights, other, 1.0, show)
    assert names(spool) == set()
    assert fetch(line, spool, weights, packed, 1.0, show).read_bytes() == RAW


def test_a_file_that_was_damaged_on_the_disk_is_fetched_again(objects: LocalObjectStore, spool: Spool) -> None:
    line, weights, packed = Line(objects), put(objects, RAW, packed=False), put(objects, RAW, packed=True)
    spool.packed_base(weights).write_bytes(objects.path(packed).read_bytes()[:-1])
    with pytest.raises(IntegrityError, match="not a whole packed file"):
        fetch(line, spool, weights, packed, 1.0, show)
    assert fetch(line, spool, weights, packed, 1.0, show).read_bytes() == RAW
