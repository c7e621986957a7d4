"""What only a store in a bucket has: a directory that may be lost or too small, addresses for sites, a service that is away."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import httpx
import pytest
from tests import s3 as s3_server
from tests.fakes import sha256

from crosstrain.demo.prepare import free_port
from crosstrain.domain.retention import Stored
from crosstrain.errors import EnvironmentFault, IntegrityError, UsageError
from crosstrain.storage import s3_object_store
from crosstrain.storage.s3_bucket import Head, Place, S3Bucket, place_of
from crosstrain.storage.s3_object_store import S3ObjectStore

DATA = bytes(range(256)) * 40
NAME = sha256(DATA)


@pytest.fixture
def place(s3: s3_server.Server) -> Place:
    return s3.place()


def opened(place: Place, directory: Path, limit: int = 1 << 30) -> S3ObjectStore:
    return S3ObjectStore(S3Bucket(place), directory, limit)


def put(store: S3ObjectStore, data: bytes) -> None:
    store.receive(sha256(data), 0, [data], len(data))


def test_blobs_outlive_the_directory(place: Place, tmp_path: Path) -> None:
    put(opened(place, tmp_path / "one"), DATA)
    shutil.rmtree(tmp_path / "one")
    store = opened(place, tmp_path / "other")
    assert store.held(NAME).length == store.size(NAME) == len(DATA)
    assert store.path(NAME).read_bytes() == DATA
    assert list(store.stored()) == [Stored(NAME, len(DATA), whole=True)]


@pytest.mark.parametrize("left", [DATA[:-1], b""])
def test_copy_that_was_cut_in_the_directory_is_read_from_the_bucket_again(
    place: Place, tmp_path: Path, left: bytes
) -> None:
    store = opened(place, tmp_path)
    put(store, DATA)
    store.path(NAME).write_bytes(left)
    assert store.path(NAME).read_bytes() == DATA


def test_address_gives_ranges_to_anybody(place: Place, tmp_path: Path) -> None:
    store = opened(place, tmp_path)
    assert store.address(NAME) is None
    put(store, DATA)
    address = store.address(NAME)
    assert address is not None
    answer = httpx.get(address, headers={"range": "bytes=100-299"})
    assert (answer.status_code, answer.headers["content-range"]) == (206, f"bytes 100-299/{len(DATA)}")
    assert answer.content == DATA[100:300]


def test_upload_that_is_whole_in_the_directory_alone_does_not_count_and_goes_on(place: Place, tmp_path: Path) -> None:
    with opened(place, tmp_path).open_part(NAME, 0, len(DATA)) as part:
        part.write(DATA)
        part._part.finish()  # type: ignore[attr-defined] - and there it died, before it spoke to the bucket
    store = opened(place, tmp_path)
    assert not store.has(NAME)
    assert store.held(NAME).length == len(DATA)
    assert list(store.stored()) == [Stored(NAME, len(DATA), whole=False)]
    assert store.receive(NAME, len(DATA), [], len(DATA)) == len(DATA)
    assert store.has(NAME)


def test_directory_keeps_to_its_limit_and_what_was_used_last(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_object_store, "KEPT", 2)
    blobs = [os.urandom(1000) for _ in range(5)]
    store = opened(place, tmp_path, limit=3000)
    for data in blobs[:3]:
        put(store, data)
    store.path(sha256(blobs[0]))
    put(store, blobs[3])
    there = {path.name for path in tmp_path.glob("??/*")}
    assert there == {sha256(blobs[number]) for number in (0, 2, 3)}
    assert store.path(sha256(blobs[1])).read_bytes() == blobs[1]
    assert len(list(tmp_path.glob("??/*"))) == 3


class Counting(S3Bucket):
    """Counts how often it is asked for a size."""

    asked = 0

    def head(self, key: str) -> Head | None:
        self.asked += 1
        return super().head(key)


def test_service_is_asked_once_about_a_blob_however_many_parts_come(place: Place, tmp_path: Path) -> None:
    bucket = Counting(place)
    store = S3ObjectStore(bucket, tmp_path, 1 << 30)
    for start in range(0, len(DATA), 1000):
        assert not store.has(NAME)
        store.receive(NAME, start, [DATA[start : start + 1000]], len(DATA))
    assert store.has(NAME) and store.size(NAME) == len(DATA)
    assert bucket.asked == 1
    store.delete(NAME)
    assert not store.has(NAME)
    assert bucket.asked == 2


def test_bytes_that_changed_in_the_bucket_are_not_taken(place: Place, tmp_path: Path) -> None:
    put(opened(place, tmp_path / "one"), DATA)
    (tmp_path / "wrong").write_bytes(DATA[::-1])
    S3Bucket(place).put(f"{NAME[:2]}/{NAME}", tmp_path / "wrong")
    with pytest.raises(IntegrityError, match="expected bytes of that SHA-256"):
        opened(place, tmp_path / "other").path(NAME)


def test_service_that_is_away_is_a_fault_of_the_environment(tmp_path: Path, s3: s3_server.Server) -> None:
    store = opened(Place("runs", "", f"http://127.0.0.1:{free_port()}", "us-east-1"), tmp_path)
    with pytest.raises(EnvironmentFault, match="The object store s3://runs/ fails"):
        store.has(NAME)
    nowhere = opened(Place("no-such-bucket", "", s3.url, "us-east-1"), tmp_path)
    with pytest.raises(EnvironmentFault, match="NoSuchBucket"):
        list(nowhere.digests())


def test_places() -> None:
    assert place_of("s3://runs/one/two/", "", "") == Place("runs", "one/two/")
    assert place_of("s3://runs", "http://host", "r") == Place("runs", "", "http://host", "r")
    for wrong in ("https://runs/x", "s3:///x", "s3://runs/x?y=1", "objects"):
        with pytest.raises(UsageError, match="names no object store"):
            place_of(wrong, "", "")
