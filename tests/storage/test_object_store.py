"""The object store: a blob is whole or absent, whatever is sent, cut off, sent twice or sent wrong."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstrain.disk import disk_faults
from crosstrain.domain.byte_ranges import ByteRanges
from crosstrain.domain.ids import Digest
from crosstrain.errors import EnvironmentFault, IntegrityError, Refused
from crosstrain.storage.durable import require_space
from crosstrain.storage.object_store import LocalObjectStore, ObjectStore, digest_file
from crosstrain.storage.s3_bucket import S3Bucket
from crosstrain.storage.s3_object_store import S3ObjectStore

DATA = bytes(range(97))


def sha256(data: bytes) -> Digest:
    return Digest(hashlib.sha256(data).hexdigest())


NAME = sha256(DATA)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "objects ☃ 'quoted'"


AnyStore = LocalObjectStore | S3ObjectStore
KINDS = ("directory", "bucket")


@pytest.fixture(params=KINDS)
def open_store(request: pytest.FixtureRequest, directory: Path) -> Callable[[], AnyStore]:
    """Opens the test's store, of each kind, as a process would that was just started."""
    if request.param == "directory":
        return lambda: LocalObjectStore(directory)
    place = request.getfixturevalue("s3").place()
    return lambda: S3ObjectStore(S3Bucket(place), directory, 1 << 30)


@pytest.fixture
def store(open_store: Callable[[], AnyStore]) -> AnyStore:
    return open_store()


def cut(data: bytes, size: int = 10) -> Iterator[bytes]:
    return (data[i : i + size] for i in range(0, len(data), size))


def broken(data: bytes) -> Iterator[bytes]:
    yield data
    raise ConnectionResetError("the site's job ended")


def holds_exactly(store: ObjectStore, data: bytes) -> bool:
    name = sha256(data)
    store.verify(name)
    return list(store.digests()) == [name] and store.path(name).read_bytes() == data and store.size(name) == len(data)


def parts(store: AnyStore) -> list[Path]:
    return list((store.directory / "uploads").glob("*"))


def test_an_empty_store(store: AnyStore) -> None:
    assert not store.has(NAME)
    assert store.held(NAME).length == 0
    assert list(store.digests()) == []
    store.delete(NAME)
    for method in (store.path, store.size, store.verify):
        with pytest.raises(IntegrityError, match=f"Expected blob {NAME}"):
            method(NAME)
    assert not store.directory.exists()


@pytest.mark.parametrize("data", [DATA, b"", b"x" * 3_000_000])
def test_upload_in_one_go(store: AnyStore, data: bytes) -> None:
    assert store.receive(sha256(data), 0, cut(data, 65_536), len(data)) == len(data)
    assert holds_exactly(store, data)
    assert store.held(sha256(data)).length == len(data)
    assert parts(store) == []


@pytest.mark.parametrize("cut_at", range(len(DATA) + 1))
def test_a_cut_at_every_byte_is_continued_by_a_new_process(directory: Path, cut_at: int) -> None:
    with pytest.raises(ConnectionResetError):
        LocalObjectStore(directory).receive(NAME, 0, broken(DATA[:cut_at]), len(DATA))
    store = LocalObjectStore(directory)
    assert not store.has(NAME)
    held = store.held(NAME).length
    assert held == cut_at
    assert store.receive(NAME, held, cut(DATA[held:]), len(DATA)) == len(DATA)
    assert holds_exactly(store, DATA)


@given(cuts=st.lists(st.integers(0, len(DATA)), max_size=8), order=st.randoms(use_true_random=False))
def test_parts_come_in_any_order_overlap_and_come_again(directory: Path, cuts: list[int], order: random.Random) -> None:
    store = LocalObjectStore(directory)
    store.delete(NAME)
    edges = sorted({0, len(DATA), *cuts})
    parts = [(start, min(len(DATA), stop + 5)) for start, stop in pairwise(edges)] * 2
    order.shuffle(parts)
    came = ByteRanges()
    for start, stop in parts:
        came = came.add(start, stop)
        assert store.receive(NAME, start, cut(DATA[start:stop], 7), len(DATA)) == came.length
        assert store.held(NAME) == came
    assert holds_exactly(store, DATA)


def test_bytes_are_written_once(store: AnyStore) -> None:
    store.receive(NAME, 0, [DATA[:40]], len(DATA))
    store.receive(NAME, 10, [b"!" * 20], len(DATA))
    assert store.receive(NAME, 40, [DATA[40:]], len(DATA)) == len(DATA)
    assert holds_exactly(store, DATA)


def test_parts_that_are_written_at_once_by_two_processes_do_not_meet(open_store: Callable[[], AnyStore]) -> None:
    one, other = open_store(), open_store()
    with one.open_part(NAME, 0, len(DATA)) as first, other.open_part(NAME, 20, len(DATA)) as second:
        first.write(DATA[:10])
        second.write(DATA[20:60])
        first.write(DATA[10:40])
        second.write(DATA[60:])
        assert first.write(DATA[40:])
        assert second.finish() == first.finish() == len(DATA)
    one.complete(NAME, len(DATA))
    assert holds_exactly(one, DATA)


def test_an_upload_whose_last_process_died_before_it_looked_is_finished_by_the_next(
    open_store: Callable[[], AnyStore],
) -> None:
    with open_store().open_part(NAME, 0, len(DATA)) as part:
        part.write(DATA)
    store = open_store()
    assert (store.has(NAME), store.held(NAME).length) == (False, len(DATA))
    assert store.receive(NAME, len(DATA), [], len(DATA)) == len(DATA)
    assert holds_exactly(store, DATA)


@pytest.mark.parametrize("note", [b"", b"{", b"[]\n", b'{"held": 5}\n', None])
def test_an_upload_whose_notes_are_damaged_begins_anew(store: AnyStore, note: bytes | None) -> None:
    store.receive(NAME, 0, [b"?" * 40], len(DATA))
    path = store.directory / "uploads" / f"{NAME}.held"
    if note is None:
        path.unlink()
    else:
        path.write_bytes(note)
    assert store.held(NAME).length == 0
    assert store.receive(NAME, 0, cut(DATA), len(DATA)) == len(DATA)
    assert holds_exactly(store, DATA)


def test_notes_of_an_earlier_upload_do_not_count_for_a_new_one(store: AnyStore) -> None:
    store.receive(NAME, 0, [DATA[:40]], len(DATA))
    (store.directory / "uploads" / f"{NAME}.part").unlink()
    assert store.held(NAME).length == 0
    assert store.receive(NAME, 40, [DATA[40:]], len(DATA)) == len(DATA) - 40


def test_the_hash_follows_an_upload_that_was_discarded_and_begun_again(store: AnyStore) -> None:
    store.receive(NAME, 0, [b"?" * 40], len(DATA))  # hashed so far
    (store.directory / "uploads" / f"{NAME}.part").unlink()
    store.receive(NAME, 0, [DATA[:40]], len(DATA))
    assert store.receive(NAME, 40, [DATA[40:]], len(DATA)) == len(DATA)
    assert holds_exactly(store, DATA)


@pytest.mark.parametrize("wrong", [DATA[:-1] + b"!", b"\0" * len(DATA)])
def test_wrong_bytes_are_discarded(store: AnyStore, wrong: bytes) -> None:
    with pytest.raises(IntegrityError, match="expected bytes of that SHA-256, found"):
        store.receive(NAME, 0, cut(wrong), len(DATA))
    assert not store.has(NAME)
    assert store.held(NAME).length == 0
    assert parts(store) == []
    assert store.receive(NAME, 0, cut(DATA), len(DATA)) == len(DATA)


def test_wrong_sizes_are_discarded(store: AnyStore) -> None:
    with pytest.raises(IntegrityError, match="expected 97 bytes, found at least 98"):
        store.receive(NAME, 0, [DATA + b"!"], len(DATA))
    assert store.held(NAME).length == 0
    store.receive(NAME, 0, [DATA[:50]], len(DATA))
    with pytest.raises(IntegrityError, match="expected 30 bytes, found 97"):
        store.receive(NAME, 0, [], 30)
    assert store.held(NAME).length == 0
    with pytest.raises(IntegrityError, match="SHA-256"):
        store.receive(NAME, 0, [DATA[:50]], 50)
    assert parts(store) == []


def test_a_blob_sent_again_is_not_read(store: AnyStore) -> None:
    store.receive(NAME, 0, [DATA], len(DATA))
    for offset in (0, 50, len(DATA)):
        assert store.receive(NAME, offset, broken(b""), len(DATA)) == len(DATA)
    for total in (len(DATA) - 1, len(DATA) + 1):
        with pytest.raises(IntegrityError, match=f"expected {total} bytes, found 97"):
            store.receive(NAME, 0, [], total)
    assert holds_exactly(store, DATA)


def test_a_dead_upload_neither_blocks_nor_damages_a_live_one(store: AnyStore) -> None:
    def dead() -> Iterator[bytes]:
        yield DATA[:30]
        assert store.receive(NAME, store.held(NAME).length, [DATA[30:]], len(DATA)) == len(DATA)
        yield b"\xff" * 67

    assert store.receive(NAME, 0, dead(), len(DATA)) == len(DATA)
    assert holds_exactly(store, DATA)
    assert parts(store) == []


def test_a_late_starter_cleans_up_after_itself(store: AnyStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(DATA)

    def late() -> Iterator[bytes]:
        store.adopt(tmp_path / "file")
        yield DATA[:10]

    assert store.receive(NAME, 0, late(), len(DATA)) == len(DATA)
    assert parts(store) == []
    assert holds_exactly(store, DATA)


def test_a_deleted_upload_says_so(store: AnyStore) -> None:
    def deleted() -> Iterator[bytes]:
        yield DATA[:30]
        store.delete(NAME)
        yield DATA[30:]

    with pytest.raises(IntegrityError, match="discarded while it ran"):
        store.receive(NAME, 0, deleted(), len(DATA))
    assert store.held(NAME).length == 0


def test_many_threads_send_the_same_blob(store: AnyStore) -> None:
    data = os.urandom(200_000)
    results: list[int] = []
    start = threading.Barrier(4)

    def send() -> None:
        start.wait()
        results.append(store.receive(sha256(data), 0, cut(data, 1000), len(data)))

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [len(data)] * 4
    assert holds_exactly(store, data)
    assert parts(store) == []


def test_complete_says_what_is_missing_and_is_content_with_what_is_there(
    open_store: Callable[[], AnyStore],
) -> None:
    store = open_store()
    for came in (0, 40):
        store.receive(NAME, 0, [DATA[:came]], len(DATA))
        with pytest.raises(Refused) as caught:
            store.complete(NAME, len(DATA))
        assert (caught.value.kind, store.has(NAME)) == ("parts-missing", False)
    with store.open_part(NAME, 40, len(DATA)) as part:
        part.write(DATA[40:])  # and killed before it looked
    for one in (open_store(), open_store()):
        one.complete(NAME, len(DATA))
        assert holds_exactly(one, DATA)
    with pytest.raises(IntegrityError, match="expected 98 bytes, found 97"):
        open_store().complete(NAME, 98)


def test_sweep_touches_neither_blobs_nor_what_is_on_its_way(store: AnyStore) -> None:
    store.receive(NAME, 0, [DATA], len(DATA))
    store.receive(sha256(b"other"), 0, [b"oth"], 5)
    store.sweep()
    assert store.held(sha256(b"other")).length == 3
    assert holds_exactly(store, DATA)


def test_uploads_go_past_the_coordinator_where_the_store_says_from_which_size_on(store: AnyStore) -> None:
    left = store.parts_left(NAME, len(DATA))
    assert (store.direct_from is None) == (left is None) == isinstance(store, LocalObjectStore)


def test_adopt(store: AnyStore, tmp_path: Path) -> None:
    for name in ("a file", "the same again"):
        file = tmp_path / name
        file.write_bytes(DATA)
        assert digest_file(file) == NAME
        assert store.adopt(file) == NAME
        assert not file.exists()
        assert holds_exactly(store, DATA)


def test_delete_and_list(store: AnyStore) -> None:
    blobs = [bytes([i]) * i for i in range(1, 30)]
    for data in blobs:
        store.receive(sha256(data), 0, [data], len(data))
    (store.directory / "ab").mkdir(exist_ok=True)
    (store.directory / "ab" / "foreign").touch()
    assert list(store.digests()) == sorted(sha256(data) for data in blobs)
    for data in blobs[1:]:
        store.delete(sha256(data))
        store.delete(sha256(data))
    assert holds_exactly(store, blobs[0])


@pytest.mark.parametrize("damage", [DATA[:-1], DATA + b"!", b"", b"!" + DATA[1:]])
def test_verify_notices_damage(store: AnyStore, directory: Path, damage: bytes) -> None:
    store.receive(NAME, 0, [DATA], len(DATA))
    if isinstance(store, S3ObjectStore):
        (file := directory.parent / "damaged").write_bytes(damage)
        store.bucket.put(f"{NAME[:2]}/{NAME}", file)
    else:
        store.path(NAME).write_bytes(damage)
    with pytest.raises(IntegrityError, match="has changed"):
        store.verify(NAME)


@pytest.mark.parametrize(
    "name", ["", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 65, "0" * 64 + "\n", "/" + "0" * 63]
)
def test_only_digests_become_file_names(store: AnyStore, name: str) -> None:
    digest = Digest(name)
    for method in (store.has, store.size, store.path, store.held, store.verify, store.delete):
        with pytest.raises(IntegrityError, match="Expected a SHA-256"):
            method(digest)
    with pytest.raises(IntegrityError, match="Expected a SHA-256"):
        store.receive(digest, 0, [], 0)


def test_no_space_is_noticed_before_writing(store: AnyStore) -> None:
    with pytest.raises(EnvironmentFault, match="bytes free"):
        store.receive(NAME, 0, broken(b""), 1 << 60)
    assert parts(store) == []


def test_other_failures_of_the_disk_pass_through(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError), disk_faults(tmp_path):
        tmp_path.open("wb")


def test_headroom(tmp_path: Path) -> None:
    require_space(tmp_path, 0, headroom=0)
    with pytest.raises(EnvironmentFault, match="bytes free"):
        require_space(tmp_path, 0, headroom=1 << 60)


def test_a_disk_that_fills_up_keeps_what_came(small_disk: Path) -> None:
    store, data = LocalObjectStore(small_disk / "objects"), os.urandom(3 << 20)
    name = sha256(data)
    with store.open_part(name, 0, len(data)) as part, (small_disk / "other").open("wb") as other:
        part.write(data[:1000])
        with contextlib.suppress(OSError):
            while other.write(bytes(1 << 20)):
                other.flush()
        with pytest.raises(EnvironmentFault, match="the disk is full"):
            for start in range(1000, len(data), 65536):
                part.write(data[start : start + 65536])
    held = store.held(name)
    assert not store.has(name)
    assert 1000 <= held.length < len(data)
    (small_disk / "other").unlink()
    for start, stop in held.missing(0, len(data)):
        store.receive(name, start, [data[start:stop]], len(data))
    assert holds_exactly(store, data)


def test_a_place_that_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentFault, match="a file is where a directory should be"):
        LocalObjectStore(tmp_path / "file").receive(NAME, 0, [DATA], len(DATA))
