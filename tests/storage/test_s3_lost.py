"""Objects that somebody removed from the bucket: put back from the directory where that has them, and told where it has not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests import s3 as s3_server
from tests.fakes import sha256

from crosstrain.errors import IntegrityError
from crosstrain.storage.s3_bucket import S3Bucket
from crosstrain.storage.s3_incoming import counted_key
from crosstrain.storage.s3_object_store import S3ObjectStore

DATA = bytes(range(256)) * 4
NAME = sha256(DATA)
KEY = counted_key(NAME)


@pytest.fixture
def bucket(s3: s3_server.Server) -> S3Bucket:
    return S3Bucket(s3.place())


def opened(bucket: S3Bucket, directory: Path) -> S3ObjectStore:
    return S3ObjectStore(bucket, directory, 1 << 30)


@pytest.fixture
def emptied(bucket: S3Bucket, tmp_path: Path) -> S3ObjectStore:
    """A store whose only blob was removed from the bucket behind its back."""
    store = opened(bucket, tmp_path)
    store.receive(NAME, 0, [DATA], len(DATA))
    bucket.delete(KEY)
    return store


def test_lost_object_is_put_back_by_the_next_look(
    bucket: S3Bucket, emptied: S3ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    emptied.sweep()
    assert dict(bucket.listed()) == {KEY: len(DATA)}
    assert f"blob {NAME[:12]} is no longer in the bucket {bucket}" in caplog.text
    emptied.verify(NAME)
    caplog.clear()
    emptied.sweep()
    assert caplog.text == ""


def test_lost_object_is_put_back_when_it_is_needed(bucket: S3Bucket, emptied: S3ObjectStore, tmp_path: Path) -> None:
    store = opened(bucket, tmp_path)
    assert not store.has(NAME)
    assert store.path(NAME).read_bytes() == DATA
    assert dict(bucket.listed()) == {KEY: len(DATA)}


def test_copy_that_is_damaged_is_not_put_back(bucket: S3Bucket, emptied: S3ObjectStore) -> None:
    emptied.path(NAME).write_bytes(DATA[::-1])
    emptied.sweep()
    assert not emptied.has(NAME)
    assert dict(bucket.listed()) == {}


@pytest.mark.parametrize("left", [None, DATA[:100], DATA[::-1]])
def test_object_that_is_lost_everywhere_is_told_and_may_come_again(
    bucket: S3Bucket, emptied: S3ObjectStore, tmp_path: Path, left: bytes | None
) -> None:
    shutil.rmtree(tmp_path)
    if left is not None:
        replaced = tmp_path.with_name("replaced")
        replaced.write_bytes(left)
        bucket.put(KEY, replaced)
    with pytest.raises(IntegrityError, match=f"(Expected blob|Blob) {NAME} in {bucket}"):
        emptied.path(NAME)
    assert not emptied.has(NAME)
    emptied.receive(NAME, 0, [DATA], len(DATA))
    emptied.verify(NAME)
