"""Sizes of parts and copies on a service whose limits nobody lifted: Ceph's gateway takes parts of 5 MiB and more."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest
from tests import s3 as s3_server
from tests.fakes import sha256

from crosstrain.domain.parts import PartRule
from crosstrain.storage import s3_bucket
from crosstrain.storage.s3_bucket import S3Bucket
from crosstrain.storage.s3_object_store import S3ObjectStore

MIB = 1 << 20


@pytest.mark.parametrize("s3", ["limits"], indirect=True)
def test_parts_of_sites_copies_in_pieces_and_puts_keep_the_limits(
    s3: s3_server.Server, fast_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_bucket, "COPY_BYTES", 5 * MIB)
    store = S3ObjectStore(S3Bucket(s3.place()), fast_tmp / "objects", 1 << 30)
    data = os.urandom(16 * MIB + 1)
    name = sha256(data)
    left = store.parts_left(name, len(data))
    assert left is not None and [part.length for part in left.missing] == [8 * MIB, 8 * MIB, 1]
    for part in left.missing:
        httpx.put(part.address, content=data[part.offset : part.offset + part.length]).raise_for_status()
    store.complete(name, len(data))
    store.verify(name)
    made = fast_tmp / "made"
    made.write_bytes(os.urandom(PartRule().usual + 1))  # boto3 puts it in parts of its own
    store.verify(store.adopt(made))
