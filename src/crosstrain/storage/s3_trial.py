"""Tries a bucket with a small object, as blobs use it: at the coordinator's start, and by `crosstrain doctor`."""

from __future__ import annotations

import hashlib
import logging
import secrets
import tempfile
from pathlib import Path

from crosstrain.domain.ids import Digest
from crosstrain.errors import EnvironmentFault
from crosstrain.storage.s3_bucket import S3Bucket
from crosstrain.storage.s3_faults import ELSE, StoreAway
from crosstrain.storage.s3_incoming import counted_key, key_of

log = logging.getLogger(__name__)


def required(bucket: S3Bucket) -> S3Bucket:
    """Tries a bucket before it is needed. One that does not answer is no reason to end: sites keep their work, and what needs the
    store waits for it.

    Raises:
        EnvironmentFault: it is not there, or refuses something that a run needs.
    """
    try:
        try_out(bucket)
    except StoreAway as error:
        log.warning("%s; sites and the coordinator wait for it with their blobs", error)
    return bucket


def try_out(bucket: S3Bucket) -> None:
    """Does once whatever is done with blobs, and leaves nothing. What a crash leaves is a blob that nothing refers to.

    Raises:
        StoreAway: the service does not answer.
        EnvironmentFault: it refuses something, or gives other bytes back.
    """
    content = secrets.token_bytes(32)
    digest = Digest(hashlib.sha256(content).hexdigest())
    incoming, counted = key_of(digest), counted_key(digest)
    with tempfile.TemporaryDirectory(prefix="crosstrain-") as directory:
        path = Path(directory) / "trial"
        path.write_bytes(content)
        bucket.put(incoming, path)
    listed, head = dict(bucket.listed(incoming)), bucket.head(incoming)
    if head is not None:
        bucket.copy(incoming, counted, head.tag)
    found = b"".join(bucket.read(counted))
    bucket.delete(incoming)
    bucket.delete(counted)
    upload = bucket.begin(incoming)
    bucket.parts(upload)
    begun = upload in bucket.uploads(incoming)
    bucket.abort(upload)
    if (listed, found, begun) != ({incoming: len(content)}, content, True):
        raise EnvironmentFault(
            f"The object store {bucket} does not give back what it was given: expected {len(content)} bytes under {incoming} "
            f"in its list, found {listed}; expected {content.hex()} in the copy, found {found.hex()}; an upload in parts that "
            f"was begun is {'there' if begun else 'missing'} in its list.",
            ELSE,
        )
