"""What only a store in a bucket has: a directory that may be lost or too small, addresses for sites, a service that is away."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from tests import s3 as s3_server
from tests.fakes import sha256
from tests.http_serving import Request
from tests.store_front import fronting

from crosstrain.clock import SystemClock
from crosstrain.demo.prepare import free_port
from crosstrain.domain import timeouts
from crosstrain.domain.retention import Stored
from crosstrain.errors import EnvironmentFault, IntegrityError, UsageError
from crosstrain.storage import bounded_directory
from crosstrain.storage.object_store import LocalObjectStore
from crosstrain.storage.s3_bucket import Head, MultipartUpload, Place, S3Bucket, place_of
from crosstrain.storage.s3_object_store import S3ObjectStore

DATA = bytes(range(256)) * 40
NAME = sha256(DATA)
WAIT_S = 10.0


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
        part.finish()  # and there it died, before it spoke to the bucket
    store = opened(place, tmp_path)
    assert not store.has(NAME)
    assert store.held(NAME).length == len(DATA)
    assert list(store.stored()) == [Stored(NAME, len(DATA), whole=False)]
    assert store.receive(NAME, len(DATA), [], len(DATA)) == len(DATA)
    assert store.has(NAME)


def test_directory_keeps_to_its_limit_and_what_was_used_last(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_directory, "KEPT", 2)
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
    with pytest.raises(EnvironmentFault, match="The object store s3://runs/ does not answer"):
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


class Hooked(S3Bucket):
    """Does something else between the service's answer to a question and its arrival."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.answered: Callable[[], object] = lambda: None

    def head(self, key: str) -> Head | None:
        found = super().head(key)
        self.answered()
        return found


def test_blob_that_is_removed_while_it_is_asked_for_is_not_taken_to_be_there_ever_after(
    place: Place, tmp_path: Path
) -> None:
    put(opened(place, tmp_path / "one"), DATA)
    bucket = Hooked(place)
    store = S3ObjectStore(bucket, tmp_path / "other", 1 << 30)

    def remove() -> None:
        bucket.answered = lambda: None
        store.delete(NAME)

    bucket.answered = remove
    assert store.has(NAME)  # when the service was asked
    assert not store.knows(NAME) and not store.has(NAME)
    put(store, DATA)
    assert store.path(NAME).read_bytes() == DATA


def test_bytes_that_an_interrupted_reading_left_wrong_are_no_fault_of_the_bucket(place: Place, tmp_path: Path) -> None:
    put(opened(place, tmp_path / "one"), DATA)
    with LocalObjectStore(tmp_path / "other").open_part(NAME, 0, len(DATA)) as part:
        part.write(bytes(1000))  # noted, and not on the disk when the power went
    assert opened(place, tmp_path / "other").path(NAME).read_bytes() == DATA


def test_directory_asks_the_service_about_what_must_go_alone_and_not_while_others_wait(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_directory, "KEPT", 1)
    blobs = [os.urandom(1000) for _ in range(5)]
    for data in blobs:
        put(opened(place, tmp_path), data)
    bucket = Hooked(place)
    store = S3ObjectStore(bucket, tmp_path, 4500)  # after a restart it knows of none
    seen: list[Path | None] = []

    def meanwhile() -> None:
        bucket.answered = look

    def look() -> None:
        bucket.answered = lambda: None
        other = threading.Thread(target=lambda: seen.append(store.ready(sha256(blobs[0]))))
        other.start()
        other.join(WAIT_S)

    bucket.answered = meanwhile
    assert store.path(sha256(blobs[0])).read_bytes() == blobs[0]
    assert len(seen) == 1 and seen[0] is not None
    assert len(list(tmp_path.glob("??/*"))) == 4


def test_service_that_is_away_keeps_nobody_from_what_is_here(place: Place, tmp_path: Path) -> None:
    blobs = [os.urandom(1000) for _ in range(2)]
    for data in blobs:
        put(opened(place, tmp_path), data)
    bucket = Hooked(place)
    store = S3ObjectStore(bucket, tmp_path, 1)

    def away() -> None:
        raise EnvironmentFault("The object store is away.")

    bucket.answered = lambda: setattr(bucket, "answered", away)
    assert store.path(sha256(blobs[0])).read_bytes() == blobs[0]


def test_store_that_is_closed_asks_for_nothing_more_in_the_middle_of_anything(
    place: Place, tmp_path: Path, s3: s3_server.Server
) -> None:
    data = os.urandom(20 << 20)  # three parts
    with fronting(s3.url) as front:
        front.known = True
        store = S3ObjectStore(S3Bucket(replace(place, endpoint=front.url)), tmp_path, 1 << 30)

        def close(request: Request) -> None:
            if request.method == "PUT":
                store.close()

        front.line.instead = close
        with pytest.raises(EnvironmentFault, match="is not asked any more"):
            put(store, data)
        asked = len(front.line.requests)
        for asks in (store.has, store.path, store.delete):
            with pytest.raises(EnvironmentFault, match="is not asked any more"):
                asks(NAME)
        assert len(front.line.requests) == asked
    again = opened(place, tmp_path)
    assert not again.has(sha256(data))
    assert again.receive(sha256(data), len(data), [], len(data)) == len(data)
    assert again.has(sha256(data))


def test_upload_that_waits_for_the_service_keeps_no_other_one_waiting(place: Place, tmp_path: Path) -> None:
    class Slow(S3Bucket):
        asked, gate = threading.Event(), threading.Event()

        def uploads(self, below: str) -> list[MultipartUpload]:
            if NAME in below:
                self.asked.set()
                assert self.gate.wait(WAIT_S)
            return super().uploads(below)

    bucket = Slow(place)
    store = S3ObjectStore(bucket, tmp_path, 1 << 30)
    waiting = threading.Thread(target=lambda: store.parts_left(NAME, len(DATA)))
    other = threading.Thread(target=lambda: store.parts_left(sha256(b"other"), 5))
    waiting.start()
    assert bucket.asked.wait(WAIT_S)
    other.start()
    other.join(WAIT_S / 2)
    kept_waiting = other.is_alive()
    bucket.gate.set()
    waiting.join(WAIT_S)
    other.join(WAIT_S)
    assert not kept_waiting


def test_removal_from_a_service_that_hangs_is_given_up_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3: s3_server.Server
) -> None:
    """A transaction is around it."""
    monkeypatch.setattr(timeouts, "STORE_BRIEF_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as hanging:  # connections come about, and nobody answers
        place = Place("runs", "", f"http://127.0.0.1:{hanging.getsockname()[1]}", "us-east-1")
        begun = SystemClock().perf()
        with pytest.raises(EnvironmentFault, match="does not answer"):
            opened(place, tmp_path).delete(NAME)
        assert SystemClock().perf() - begun < WAIT_S
        hanging.settimeout(0)
        hanging.accept()[0].close()
        with pytest.raises(BlockingIOError):  # it was asked once
            hanging.accept()
