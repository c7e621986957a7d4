"""Uploads straight into the bucket: what came is found again, and nothing counts before it was verified, wherever it is cut."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from tests import s3 as s3_server
from tests.fakes import sha256

from crosstrain.domain.byte_ranges import Span
from crosstrain.domain.parts import PartRule, SignedPart
from crosstrain.domain.retention import Stored
from crosstrain.errors import EnvironmentFault, IntegrityError, Refused
from crosstrain.storage import s3_incoming
from crosstrain.storage.s3_bucket import MultipartUpload, Place, S3Bucket, StoredPart
from crosstrain.storage.s3_object_store import S3ObjectStore

RULE = PartRule(least=100, usual=1000, most=8)
DATA = bytes(range(256)) * 16
NAME = sha256(DATA)
TOTAL = len(DATA)
HTTP = httpx.Client(limits=httpx.Limits(max_keepalive_connections=0))

pytestmark = s3_server.on_every_server


@pytest.fixture
def place(s3: s3_server.Server) -> Place:
    return s3.place()


@pytest.fixture
def bucket(place: Place) -> S3Bucket:
    return S3Bucket(place)


@pytest.fixture
def directory(fast_tmp: Path) -> Path:
    return fast_tmp / "objects"


def opened(bucket: S3Bucket, directory: Path) -> S3ObjectStore:
    """The store, as a process opens it that was just started."""
    return S3ObjectStore(bucket, directory, 1 << 30, RULE)


def asked(store: S3ObjectStore, data: bytes = DATA) -> tuple[SignedPart, ...]:
    left = store.parts_left(sha256(data), len(data))
    assert left is not None
    assert left.received == len(data) - sum(part.length for part in left.missing)
    return left.missing


def put(data: bytes, *parts: SignedPart) -> None:
    """What a site does: it knows the addresses and nothing else."""
    for part in parts:
        answer = HTTP.put(part.address, content=data[part.offset : part.offset + part.length])
        assert answer.status_code == 200, answer.text


def test_blob_comes_in_parts_and_counts_when_it_is_verified(bucket: S3Bucket, directory: Path) -> None:
    store = opened(bucket, directory)
    assert store.direct_from == RULE.least
    missing = asked(store)
    assert [(part.number, part.offset, part.length) for part in missing] == [
        *((1 + number, 1000 * number, 1000) for number in range(4)),
        (5, 4000, 96),
    ]
    put(DATA, *missing)
    assert not store.has(NAME)
    assert list(store.digests()) == []
    store.complete(NAME, TOTAL)
    assert store.has(NAME)
    assert store.path(NAME).read_bytes() == DATA
    assert list(store.stored()) == [Stored(NAME, TOTAL, whole=True)]
    assert [key for key, _ in bucket.listed()] == [f"{NAME[:2]}/{NAME}"]
    store.complete(NAME, TOTAL)
    assert asked(store) == ()


def test_upload_goes_on_after_the_coordinator_lost_everything(bucket: S3Bucket, directory: Path) -> None:
    first = asked(opened(bucket, directory))
    put(DATA, first[3], first[1])
    shutil.rmtree(directory, ignore_errors=True)
    store = opened(bucket, directory)
    left = asked(store)
    assert [part.number for part in left] == [1, 3, 5]
    with pytest.raises(Refused, match="2,000 of 4,096 bytes are there") as caught:
        store.complete(NAME, TOTAL)
    assert caught.value.kind == "parts-missing"
    put(DATA, *left)
    store.complete(NAME, TOTAL)
    assert store.path(NAME).read_bytes() == DATA


def test_upload_that_nobody_began_misses_everything(bucket: S3Bucket, directory: Path) -> None:
    with pytest.raises(Refused, match="0 of 4,096 bytes") as caught:
        opened(bucket, directory).complete(NAME, TOTAL)
    assert caught.value.kind == "parts-missing"


def test_part_of_another_length_is_sent_again(bucket: S3Bucket, directory: Path) -> None:
    store = opened(bucket, directory)
    missing = asked(store)
    put(DATA, *missing)
    HTTP.put(missing[2].address, content=DATA[:10])
    assert [part.number for part in asked(store)] == [3]
    put(DATA, *asked(store))
    store.complete(NAME, TOTAL)
    assert store.path(NAME).read_bytes() == DATA


def test_parts_are_told_some_at_a_time(bucket: S3Bucket, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_incoming, "SIGNED_AT_ONCE", 2)
    store, numbers = opened(bucket, directory), []
    while True:
        left = store.parts_left(NAME, TOTAL)
        assert left is not None
        if not left.missing:
            break
        assert left.received == 1000 * len(numbers)
        numbers += [part.number for part in left.missing]
        put(DATA, *left.missing)
    assert numbers == [1, 2, 3, 4, 5]
    store.complete(NAME, TOTAL)


def test_wrong_bytes_are_refused_with_the_reason_and_removed(bucket: S3Bucket, directory: Path) -> None:
    store, wrong = opened(bucket, directory), DATA[:-1] + b"!"
    put(wrong, *asked(store))
    with pytest.raises(IntegrityError, match=f"expected bytes of that SHA-256, found {sha256(wrong)}"):
        store.complete(NAME, TOTAL)
    assert list(bucket.listed()) == []
    assert (store.has(NAME), store.held(NAME).length) == (False, 0)
    put(DATA, *asked(store))
    store.complete(NAME, TOTAL)
    assert store.path(NAME).read_bytes() == DATA


def test_object_of_another_length_is_refused_and_removed(bucket: S3Bucket, directory: Path, tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(DATA[:50])
    for ask in (lambda store: store.complete(NAME, TOTAL), lambda store: store.parts_left(NAME, TOTAL)):
        bucket.put(s3_incoming.key_of(NAME), tmp_path / "short")
        with pytest.raises(IntegrityError, match="expected 4,096 bytes, found 50"):
            ask(opened(bucket, directory))
        assert list(bucket.listed()) == []


def test_blob_of_another_length_is_refused(bucket: S3Bucket, directory: Path) -> None:
    store = opened(bucket, directory)
    store.receive(NAME, 0, [DATA], TOTAL)
    for ask in (store.complete, store.parts_left):
        with pytest.raises(IntegrityError, match="expected 5 bytes, found 4,096"):
            ask(NAME, 5)


def test_upload_goes_on_the_way_on_which_more_of_it_came(bucket: S3Bucket, directory: Path) -> None:
    store = opened(bucket, directory)
    put(DATA, *asked(store)[:2])
    store.receive(NAME, 0, [DATA[:1500]], TOTAL)
    assert [part.number for part in asked(store)] == [3, 4, 5]
    store.receive(NAME, 1500, [DATA[1500:3000]], TOTAL)
    assert store.parts_left(NAME, TOTAL) is None
    store.receive(NAME, 3000, [DATA[3000:]], TOTAL)
    assert store.has(NAME)


def test_what_is_on_its_way_is_listed_and_goes_when_it_is_discarded(bucket: S3Bucket, directory: Path) -> None:
    store = opened(bucket, directory)
    put(DATA, *asked(store)[:2])
    assert list(store.stored()) == [Stored(NAME, 2000, whole=False)]
    put(DATA, *asked(store))
    upload = bucket.uploads(s3_incoming.PLACE)[0]
    bucket.complete(upload, bucket.parts(upload))
    assert bucket.parts(upload) == {}  # it is over
    bucket.abort(upload)
    assert list(store.stored()) == [Stored(NAME, TOTAL, whole=False)]
    asked(store, DATA[:200])
    bucket.begin(s3_incoming.counted_key(NAME))  # a put or a copy during which the coordinator was killed
    store.discard(NAME)
    store.discard(sha256(DATA[:200]))
    assert list(store.stored()) == []
    assert bucket.uploads("") == []


def test_what_is_left_of_uploads_is_swept_once_the_blob_is_there(bucket: S3Bucket, directory: Path) -> None:
    store = opened(bucket, directory)
    put(DATA, *asked(store)[:2])
    store.sweep()
    assert [part.number for part in asked(store)] == [3, 4, 5]  # it goes on
    store.receive(NAME, 0, [DATA], TOTAL)
    bucket.begin(s3_incoming.counted_key(NAME))
    store.sweep()
    assert bucket.uploads("") == []
    assert store.path(NAME).read_bytes() == DATA


def test_large_object_is_read_by_several_readers_and_goes_on_where_that_was_cut(
    place: Place, bucket: S3Bucket, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crosstrain.storage.s3_object_store.READ_SPAN", 700)
    data = os.urandom(7 * 700 + 1)
    put(data, *asked(opened(bucket, directory), data))
    opened(bucket, directory).complete(sha256(data), len(data))
    shutil.rmtree(directory)
    with pytest.raises(EnvironmentFault, match="planted"):
        opened(Fragile(place, reads=4), directory).path(sha256(data))
    there = sum(part.stat().st_size for part in directory.glob("uploads/*.part"))
    patient = Fragile(place, reads=100)
    assert opened(patient, directory).path(sha256(data)).read_bytes() == data
    assert there and 0 < patient.bytes_read < len(data)


def test_what_came_in_is_verified_by_its_own_bytes_alone(bucket: S3Bucket, directory: Path) -> None:
    """Bytes that came through the coordinator as well prove nothing about the object that would be copied."""
    store, spoilt = opened(bucket, directory), b"!" + DATA[1:]
    store.receive(NAME, 0, [DATA[:1500]], TOTAL)
    bucket_put(bucket, spoilt, directory)
    with pytest.raises(IntegrityError, match=f"found {sha256(spoilt)}"):
        store.complete(NAME, TOTAL)
    assert list(bucket.listed()) == []
    with store.open_part(NAME, 1500, TOTAL) as part:
        part.write(DATA[1500:])  # and killed before it looked
    bucket_put(bucket, spoilt, directory)
    store.complete(NAME, TOTAL)
    store.verify(NAME)


def bucket_put(bucket: S3Bucket, data: bytes, directory: Path) -> None:
    """What came in, by a site that is broken."""
    path = directory.with_name("spoilt")
    path.write_bytes(data)
    bucket.put(s3_incoming.key_of(NAME), path)


class Fragile(S3Bucket):
    """Reads so many times, then fails."""

    def __init__(self, place: Place, reads: int) -> None:
        super().__init__(place)
        self._reads = iter(range(reads))
        self.bytes_read = 0

    def read(self, key: str, span: Span | None = None) -> Iterator[bytes]:
        if next(self._reads, None) is None:
            raise EnvironmentFault("A planted fault.", "")
        for data in super().read(key, span):
            self.bytes_read += len(data)
            yield data


class KilledError(BaseException):
    """The end of a process."""


class Mortal(S3Bucket):
    """A bucket whose process dies before or after a change to it, when it has lived for so many halves of changes."""

    life = 0

    def _half(self) -> None:
        self.life -= 1
        if self.life == 0:
            raise KilledError

    def complete(self, upload: MultipartUpload, parts: Mapping[int, StoredPart]) -> None:
        self._half()
        super().complete(upload, parts)
        self._half()

    def copy(self, source: str, target: str, tag: str) -> None:
        self._half()
        super().copy(source, target, tag)
        self._half()

    def delete(self, key: str) -> None:
        self._half()
        super().delete(key)
        self._half()


STEPS = 6
"""Halves of completing, copying and removing what came in."""


@pytest.mark.parametrize(("wrong", "lost"), [(False, False), (False, True), (True, True)])
def test_coordinator_that_dies_at_any_step_leaves_nothing_that_was_not_verified(
    place: Place, bucket: S3Bucket, directory: Path, wrong: bool, lost: bool
) -> None:
    mortal, deaths = Mortal(place), []
    for life in range(1, STEPS + 2):
        data = os.urandom(1100)
        name, sent = sha256(data), bytes(1100) if wrong else data
        put(sent, *asked(opened(bucket, directory), data))
        mortal.life = life
        end = ""
        try:
            opened(mortal, directory).complete(name, len(data))
        except (KilledError, IntegrityError) as error:
            end = type(error).__name__
        deaths.append(end == "KilledError")
        if lost:
            shutil.rmtree(directory, ignore_errors=True)
        check_that_it_ends_well(opened(bucket, directory), bucket, data, wrong)
    opened(bucket, directory).sweep()
    assert [key for key, _ in bucket.listed() if key.startswith(s3_incoming.PLACE)] == []
    assert bucket.uploads("") == []
    assert deaths == [life <= (4 if wrong else STEPS) for life in range(1, STEPS + 2)]


def check_that_it_ends_well(store: S3ObjectStore, bucket: S3Bucket, data: bytes, wrong: bool) -> None:
    """After the coordinator died: the site asks, sends what is missing, and says that all is there."""
    name = sha256(data)
    if wrong:
        assert f"{name[:2]}/{name}" not in dict(bucket.listed())
        if not asked(store, data):
            with pytest.raises(IntegrityError, match="expected bytes of that SHA-256"):
                store.complete(name, len(data))
        put(data, *asked(store, data))
    assert asked(store, data) == ()  # nothing is sent a second time
    store.complete(name, len(data))
    assert dict(bucket.listed())[f"{name[:2]}/{name}"] == len(data)
