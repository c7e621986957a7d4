"""Parts of an upload that are taken off a connection: the same blob, and the same refusals, as by `write`."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.connections import bringing, rest_of, take

from crosstrain.domain.ids import Digest
from crosstrain.errors import EnvironmentFault, IntegrityError
from crosstrain.pieces import Moved
from crosstrain.storage.object_store import LocalObjectStore, Part
from crosstrain.storage.s3_bucket import S3Bucket
from crosstrain.storage.s3_object_store import S3ObjectStore

DATA = random.Random(5).randbytes((2 << 20) + 77)
NAME = Digest(hashlib.sha256(DATA).hexdigest())
PATIENCE_S = 20.0
AnyStore = LocalObjectStore | S3ObjectStore


@pytest.fixture(params=["directory", "bucket"])
def store(request: pytest.FixtureRequest, fast_tmp: Path) -> AnyStore:
    if request.param == "directory":
        return LocalObjectStore(fast_tmp / "objects")
    place = request.getfixturevalue("s3").place()
    return S3ObjectStore(S3Bucket(place), fast_tmp / "objects", 1 << 30)


def receive_all(part: Part, connection: socket.socket, count: int) -> None:
    moved = take(connection, count, lambda done: wanted(part.receive(connection, count - done)))
    assert (moved.received, moved.file_error) == (count, 0)


def wanted(moved: Moved | None) -> Moved:
    assert moved is not None
    return moved


@pytest.mark.parametrize("cut_at", [0, 1, 1 << 16, (1 << 20) + 3, len(DATA) - 1])
def test_parts_that_are_received_and_written_make_one_blob(store: AnyStore, cut_at: int) -> None:
    with store.open_part(NAME, 0, len(DATA)) as part:
        assert part.write(DATA[:cut_at])
        with bringing(DATA[cut_at:]) as connection:
            receive_all(part, connection, len(DATA) - cut_at)
        assert part.finish() == len(DATA)
    if not store.has(NAME):
        store.complete(NAME, len(DATA))
    store.verify(NAME)
    assert store.path(NAME).read_bytes() == DATA


def test_more_than_the_blob_has_is_refused_and_discarded(store: AnyStore) -> None:
    with store.open_part(NAME, 0, len(DATA)) as part, bringing(DATA + b"!") as connection:
        receive_all(part, connection, len(DATA))
        with pytest.raises(IntegrityError, match=f"found at least {len(DATA) + 1:,}"):
            part.receive(connection, 1)
    assert store.held(NAME).length == 0
    assert not store.has(NAME)


@pytest.mark.parametrize("behind", [0, 1, 1000])
@pytest.mark.parametrize("take", ["write", "receive"])
def test_part_that_begins_behind_the_blob_is_refused(store: AnyStore, behind: int, take: str) -> None:
    refused = pytest.raises(IntegrityError, match="found at least")
    with store.open_part(NAME, len(DATA) + behind, len(DATA)) as part, bringing(b"!") as connection, refused:
        part.receive(connection, 1) if take == "receive" else part.write(b"!")
    assert store.held(NAME).length == 0


def test_blob_that_is_damaged_on_its_way_is_refused_at_its_end(store: AnyStore) -> None:
    with store.open_part(NAME, 0, len(DATA)) as part, bringing(b"!" + DATA[1:]) as connection:
        receive_all(part, connection, len(DATA))
        with pytest.raises(IntegrityError, match="bytes of that SHA-256"):
            part.finish()
    assert store.held(NAME).length == 0


def test_nothing_is_received_of_a_blob_that_is_there(store: AnyStore) -> None:
    with store.open_part(NAME, 0, len(DATA)) as late:
        store.receive(NAME, 0, [DATA], len(DATA))
        if not store.has(NAME):
            store.complete(NAME, len(DATA))
        with store.open_part(NAME, 0, len(DATA)) as unneeded, bringing(b"x" * 1000, ends=True) as connection:
            assert late.receive(connection, 1000) is None
            assert unneeded.receive(connection, 1000) is None
            assert rest_of(connection) == b"x" * 1000
            assert unneeded.finish() == late.finish() == len(DATA)
    store.verify(NAME)


Call = Callable[[Part, socket.socket], object]


@pytest.mark.parametrize("call", [lambda part, connection: part.receive(connection, 1), lambda part, _: part.finish()])
def test_what_a_full_disk_refuses_is_said_by_the_next_call(small_disk: Path, call: Call) -> None:
    store = LocalObjectStore(small_disk / "objects")
    with store.open_part(NAME, 0, len(DATA)) as part, bringing(DATA) as connection:
        receive_all(part, connection, 1000)
        ballast = small_disk / "ballast"
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(small_disk).free - (1 << 18))
        left = len(DATA) - 1000
        moved = take(connection, left, lambda done: wanted(part.receive(connection, left - done)))
        assert moved.file_error and moved.written < moved.received
        with pytest.raises(EnvironmentFault, match="the disk is full"):
            call(part, connection)
    ballast.unlink()
    held = store.held(NAME)
    assert 1000 < held.length < 1000 + moved.received < len(DATA)
    for start, stop in held.missing(0, len(DATA)):
        store.receive(NAME, start, [DATA[start:stop]], len(DATA))
    assert store.path(NAME).read_bytes() == DATA
