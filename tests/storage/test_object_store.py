"""The object store: a blob is whole or absent, whatever is sent, cut off, sent twice or sent wrong."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from crosstrain.domain.ids import Digest
from crosstrain.errors import EnvironmentFault, IntegrityError, Refused
from crosstrain.storage.durable import disk_faults, require_space
from crosstrain.storage.object_store import LocalObjectStore, ObjectStore, digest_file

DATA = bytes(range(97))


def sha256(data: bytes) -> Digest:
    return Digest(hashlib.sha256(data).hexdigest())


NAME = sha256(DATA)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "objects ☃ 'quoted'"


@pytest.fixture
def store(directory: Path) -> LocalObjectStore:
    return LocalObjectStore(directory)


def cut(data: bytes, size: int = 10) -> Iterator[bytes]:
    return (data[i : i + size] for i in range(0, len(data), size))


def broken(data: bytes) -> Iterator[bytes]:
    yield data
    raise ConnectionResetError("the site's job ended")


def holds_exactly(store: ObjectStore, data: bytes) -> bool:
    name = sha256(data)
    store.verify(name)
    return list(store.digests()) == [name] and store.path(name).read_bytes() == data and store.size(name) == len(data)


def parts(store: LocalObjectStore) -> list[Path]:
    return list((store.directory / "uploads").glob("*"))


def test_an_empty_store(store: LocalObjectStore) -> None:
    assert not store.has(NAME)
    assert store.received(NAME) == 0
    assert list(store.digests()) == []
    store.delete(NAME)
    for method in (store.path, store.size, store.verify):
        with pytest.raises(IntegrityError, match=f"Expected blob {NAME}"):
            method(NAME)
    assert not store.directory.exists()


@pytest.mark.parametrize("data", [DATA, b"", b"x" * 3_000_000])
def test_upload_in_one_go(store: LocalObjectStore, data: bytes) -> None:
    assert store.append(sha256(data), 0, cut(data, 65_536), len(data)) == len(data)
    assert holds_exactly(store, data)
    assert store.received(sha256(data)) == len(data)
    assert parts(store) == []


@pytest.mark.parametrize("cut_at", range(len(DATA) + 1))
def test_a_cut_at_every_byte_is_continued_by_a_new_process(directory: Path, cut_at: int) -> None:
    with pytest.raises(ConnectionResetError):
        LocalObjectStore(directory).append(NAME, 0, broken(DATA[:cut_at]), len(DATA))
    store = LocalObjectStore(directory)
    assert not store.has(NAME)
    held = store.received(NAME)
    assert held == cut_at
    assert store.append(NAME, held, cut(DATA[held:]), len(DATA)) == len(DATA)
    assert holds_exactly(store, DATA)


def test_parts_sent_separately(store: LocalObjectStore) -> None:
    for begin in range(0, len(DATA), 20):
        assert store.append(NAME, begin, [DATA[begin : begin + 20]], len(DATA)) == min(begin + 20, len(DATA))
    assert holds_exactly(store, DATA)


@pytest.mark.parametrize("offset", [0, 1, 39, 40])
def test_what_was_held_may_be_sent_again(store: LocalObjectStore, offset: int) -> None:
    store.append(NAME, 0, [DATA[:40]], len(DATA))
    assert store.append(NAME, offset, cut(DATA[offset:], 7), len(DATA)) == len(DATA)
    assert holds_exactly(store, DATA)


def test_sending_again_heals_damaged_bytes(store: LocalObjectStore) -> None:
    store.append(NAME, 0, [b"\0" * 40], len(DATA))
    assert store.append(NAME, 0, [DATA[:10]], len(DATA)) == 40
    assert store.append(NAME, 10, [DATA[10:]], len(DATA)) == len(DATA)
    assert holds_exactly(store, DATA)


@pytest.mark.parametrize("offset", [-1, 41, 97])
def test_gaps_are_refused(store: LocalObjectStore, offset: int) -> None:
    store.append(NAME, 0, [DATA[:40]], len(DATA))
    with pytest.raises(Refused, match="continue at byte 40") as refusal:
        store.append(NAME, offset, [DATA[40:]], len(DATA))
    assert refusal.value.kind == "upload-gap"
    assert store.received(NAME) == 40


def test_an_upload_without_bytes_leaves_nothing(store: LocalObjectStore) -> None:
    with pytest.raises(Refused):
        store.append(NAME, 5, [DATA], len(DATA))
    assert not store.directory.exists()


@pytest.mark.parametrize("wrong", [DATA[:-1] + b"!", b"\0" * len(DATA)])
def test_wrong_bytes_are_discarded(store: LocalObjectStore, wrong: bytes) -> None:
    with pytest.raises(IntegrityError, match="expected bytes of that SHA-256, found"):
        store.append(NAME, 0, cut(wrong), len(DATA))
    assert not store.has(NAME)
    assert store.received(NAME) == 0
    assert parts(store) == []
    assert store.append(NAME, 0, cut(DATA), len(DATA)) == len(DATA)


def test_wrong_sizes_are_discarded(store: LocalObjectStore) -> None:
    with pytest.raises(IntegrityError, match="expected 97 bytes, found at least 98"):
        store.append(NAME, 0, [DATA + b"!"], len(DATA))
    assert store.received(NAME) == 0
    store.append(NAME, 0, [DATA[:50]], len(DATA))
    with pytest.raises(IntegrityError, match="expected 30 bytes, found 50"):
        store.append(NAME, 0, [], 30)
    assert store.received(NAME) == 0
    with pytest.raises(IntegrityError, match="SHA-256"):
        store.append(NAME, 0, [DATA[:50]], 50)
    assert parts(store) == []


def test_a_blob_sent_again_is_not_read(store: LocalObjectStore) -> None:
    store.append(NAME, 0, [DATA], len(DATA))
    for offset in (0, 50, len(DATA)):
        assert store.append(NAME, offset, broken(b""), len(DATA)) == len(DATA)
    for total in (len(DATA) - 1, len(DATA) + 1):
        with pytest.raises(IntegrityError, match=f"expected {total} bytes, found 97"):
            store.append(NAME, 0, [], total)
    assert holds_exactly(store, DATA)


def test_a_dead_upload_neither_blocks_nor_damages_a_live_one(store: LocalObjectStore) -> None:
    def dead() -> Iterator[bytes]:
        yield DATA[:30]
        assert store.append(NAME, store.received(NAME), [DATA[30:]], len(DATA)) == len(DATA)
        yield b"\xff" * 67

    assert store.append(NAME, 0, dead(), len(DATA)) == len(DATA)
    assert holds_exactly(store, DATA)
    assert parts(store) == []


def test_a_late_starter_cleans_up_after_itself(store: LocalObjectStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(DATA)

    def late() -> Iterator[bytes]:
        store.adopt(tmp_path / "file")
        yield DATA[:10]

    assert store.append(NAME, 0, late(), len(DATA)) == len(DATA)
    assert parts(store) == []
    assert holds_exactly(store, DATA)


def test_a_deleted_upload_says_so(store: LocalObjectStore) -> None:
    def deleted() -> Iterator[bytes]:
        yield DATA[:30]
        store.delete(NAME)
        yield DATA[30:]

    with pytest.raises(IntegrityError, match="discarded while it ran"):
        store.append(NAME, 0, deleted(), len(DATA))
    assert store.received(NAME) == 0


def test_a_part_cut_under_a_running_upload_is_a_gap(store: LocalObjectStore) -> None:
    def cut_short() -> Iterator[bytes]:
        yield DATA[:30]
        os.truncate(parts(store)[0], 10)
        yield DATA[30:]

    with pytest.raises(Refused, match="continue at byte 10"):
        store.append(NAME, 0, cut_short(), len(DATA))


def test_many_threads_send_the_same_blob(store: LocalObjectStore) -> None:
    data = os.urandom(200_000)
    results: list[int] = []
    start = threading.Barrier(4)

    def send() -> None:
        start.wait()
        results.append(store.append(sha256(data), 0, cut(data, 1000), len(data)))

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [len(data)] * 4
    assert holds_exactly(store, data)
    assert parts(store) == []


def test_adopt(store: LocalObjectStore, tmp_path: Path) -> None:
    for name in ("a file", "the same again"):
        file = tmp_path / name
        file.write_bytes(DATA)
        assert digest_file(file) == NAME
        assert store.adopt(file) == NAME
        assert not file.exists()
        assert holds_exactly(store, DATA)


def test_delete_and_list(store: LocalObjectStore) -> None:
    blobs = [bytes([i]) * i for i in range(1, 30)]
    for data in blobs:
        store.append(sha256(data), 0, [data], len(data))
    (store.directory / "ab").mkdir(exist_ok=True)
    (store.directory / "ab" / "foreign").touch()
    assert list(store.digests()) == sorted(sha256(data) for data in blobs)
    for data in blobs[1:]:
        store.delete(sha256(data))
        store.delete(sha256(data))
    assert holds_exactly(store, blobs[0])


@pytest.mark.parametrize("damage", [DATA[:-1], DATA + b"!", b"", b"!" + DATA[1:]])
def test_verify_notices_damage(store: LocalObjectStore, damage: bytes) -> None:
    store.append(NAME, 0, [DATA], len(DATA))
    store.path(NAME).write_bytes(damage)
    with pytest.raises(IntegrityError, match="has changed"):
        store.verify(NAME)


@pytest.mark.parametrize(
    "name", ["", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 65, "0" * 64 + "\n", "/" + "0" * 63]
)
def test_only_digests_become_file_names(store: LocalObjectStore, name: str) -> None:
    digest = Digest(name)
    for method in (store.has, store.size, store.path, store.received, store.verify, store.delete):
        with pytest.raises(IntegrityError, match="Expected a SHA-256"):
            method(digest)
    with pytest.raises(IntegrityError, match="Expected a SHA-256"):
        store.append(digest, 0, [], 0)


def test_no_space_is_noticed_before_writing(store: LocalObjectStore) -> None:
    with pytest.raises(EnvironmentFault, match="bytes free"):
        store.append(NAME, 0, broken(b""), 1 << 60)
    assert parts(store) == []


def test_other_failures_of_the_disk_pass_through(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError), disk_faults(tmp_path):
        tmp_path.open("wb")


def test_headroom(tmp_path: Path) -> None:
    require_space(tmp_path, 0, headroom=0)
    with pytest.raises(EnvironmentFault, match="bytes free"):
        require_space(tmp_path, 0, headroom=1 << 60)


def test_a_disk_that_fills_up_keeps_the_part(store: LocalObjectStore) -> None:
    uploads = store.directory / "uploads"
    uploads.mkdir(parents=True)
    (uploads / f"{NAME}.part").symlink_to("/dev/full")
    with pytest.raises(EnvironmentFault, match="the disk is full"):
        store.append(NAME, 0, [DATA], len(DATA))
    assert not store.has(NAME)


def test_a_place_that_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentFault, match="a file is where a directory should be"):
        LocalObjectStore(tmp_path / "file").append(NAME, 0, [DATA], len(DATA))
