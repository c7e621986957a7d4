"""Tries the bucket of the run file, as the coordinator would use it; what it puts there it removes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from crosstrain.config import CoordinatorSection
from crosstrain.doctor.observations import BucketSeen
from crosstrain.errors import CrosstrainError
from crosstrain.storage.s3_bucket import S3Bucket, has_credentials, place_of
from crosstrain.storage.s3_incoming import PLACE

CONTENT = b"crosstrain doctor"


def try_bucket(section: CoordinatorSection) -> BucketSeen:
    """Writes, reads, lists and deletes a small object where uploads come in, and begins an upload in parts."""
    name = section.objects
    try:
        place = place_of(section.objects, section.objects_endpoint, section.objects_region)
        if not has_credentials():
            return BucketSeen(name, tried=False)
        bucket, key = S3Bucket(place), f"{PLACE}doctor-{os.getpid()}"
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "trial"
            path.write_bytes(CONTENT)
            bucket.put(key, path)
        found, listed = b"".join(bucket.read(key)), dict(bucket.listed(key))
        bucket.abort(bucket.begin(key))
        bucket.delete(key)
    except CrosstrainError as error:
        return BucketSeen(name, error=error.message)
    if (found, listed) != (CONTENT, {key: len(CONTENT)}):
        return BucketSeen(name, error=f"{name} gave {listed} and {found[:40]!r} back for {CONTENT!r}.")
    return BucketSeen(name)
