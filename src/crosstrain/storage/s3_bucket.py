"""The requests of an S3-compatible service that blobs need, by boto3 (extra `s3`).

Credentials come from where AWS's own tools take them: `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, `AWS_PROFILE`,
~/.aws, or the role of the machine.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from crosstrain.domain import timeouts
from crosstrain.domain.byte_ranges import Span
from crosstrain.errors import EnvironmentFault, IntegrityError, UsageError
from crosstrain.storage.s3_faults import fault

READ_BYTES = 1 << 20
ATTEMPTS = 3
"""Of one request, by boto3; what fails after that is tried again by whoever asked, and said in the log."""
COPY_BYTES = 64 << 20
"""Objects larger than this are copied within the service in pieces of this size, several at once."""
GONE = frozenset({"NoSuchUpload", "NoSuchKey", "InvalidPart", "InvalidPartOrder"})
"""What a service says of a multipart upload that somebody else ended or changed; Ceph calls one that is over a key."""
LOST = frozenset({"NoSuchKey", "InvalidRange"})
"""What it says of an object that is not there, or not as long."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where blobs are.

    Attributes:
        prefix: of all keys; empty, or with a slash at its end.
        endpoint, region: empty for the defaults of AWS's configuration.
    """

    bucket: str
    prefix: str
    endpoint: str = ""
    region: str = ""


def place_of(address: str, endpoint: str, region: str) -> Place:
    """The place that `coordinator.objects` names.

    Raises:
        UsageError: it is no `s3://BUCKET/PREFIX`.
    """
    parts = urlsplit(address)
    if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment:
        raise UsageError(
            f"{address!r} names no object store.",
            'set `coordinator.objects` to "s3://BUCKET/PREFIX", or leave it empty',
        )
    prefix = parts.path.strip("/")
    return Place(parts.netloc, f"{prefix}/" if prefix else "", endpoint, region)


def has_credentials() -> bool:
    """Whether boto3 is installed and finds credentials."""
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
    except ImportError:
        return False
    try:
        return boto3.session.Session().get_credentials() is not None
    except BotoCoreError:
        return False


class Head(NamedTuple):
    """What is known of an object without reading it; another object under the same key has another tag."""

    size: int
    tag: str


class MultipartUpload(NamedTuple):
    """A multipart upload that was begun and neither completed nor aborted; `key` is without the prefix."""

    key: str
    number: str


class StoredPart(NamedTuple):
    """A part of a multipart upload that is there."""

    size: int
    tag: str


class S3Bucket:
    """Keys below a prefix of one bucket; for several threads.

    Raises:
        EnvironmentFault: from any method, the service refuses or does not answer.
        UsageError: boto3 is not installed.
    """

    def __init__(self, place: Place) -> None:
        try:
            import boto3
        except ImportError as error:
            raise UsageError(
                "`coordinator.objects` needs boto3, which is not installed.", "pip install 'crosstrain[s3]'"
            ) from error
        self._place = place
        self._closed = threading.Event()
        with self._faults():
            self._session = boto3.session.Session()  # one, because credentials may have to be fetched
        self._client: Any = self._open(timeouts.CONNECT_S, timeouts.STORE_SILENT_S, ATTEMPTS)

    def _open(self, connect_s: float, silent_s: float, attempts: int) -> Any:
        from botocore.config import Config

        place = self._place
        settings = Config(
            signature_version="s3v4",
            connect_timeout=connect_s,
            read_timeout=silent_s,
            retries={"total_max_attempts": attempts, "mode": "standard"},
            s3={"addressing_style": "path" if place.endpoint else "auto"},
            # Not every compatible service knows the newer checksums; the SHA-256 is checked by us.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        with self._faults():
            client = self._session.client(
                "s3", endpoint_url=place.endpoint or None, region_name=place.region or None, config=settings
            )
        client.meta.events.register("before-send.s3", self._go_on)
        return client

    @cached_property
    def _brief(self) -> Any:
        """For requests inside a transaction: one attempt, and a short one."""
        return self._open(timeouts.STORE_BRIEF_S, timeouts.STORE_BRIEF_S, 1)

    def close(self) -> None:
        """Begins no request any more, also none of the many that some methods make; from any thread."""
        self._closed.set()

    def _go_on(self, *_: object, **__: object) -> None:
        """Called before every request, and while bytes are sent."""
        if self._closed.is_set():
            raise EnvironmentFault(f"The object store {self} is not asked any more: this process ends.", "ask again")

    def __str__(self) -> str:
        return f"s3://{self._place.bucket}/{self._place.prefix}"

    def head(self, key: str) -> Head | None:
        """Size and tag of an object, None if there is none."""
        from botocore.exceptions import ClientError

        with self._faults():
            try:
                found = self._client.head_object(**self._at(key))
                return Head(int(found["ContentLength"]), str(found["ETag"]))
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                    return None
                raise

    def put(self, key: str, path: Path) -> None:
        """Uploads a file; a large one in parts, several at once. The object appears whole or not at all."""
        with self._faults():
            where = self._at(key)
            self._client.upload_file(str(path), where["Bucket"], where["Key"], Callback=self._go_on)

    def read(self, key: str, span: Span | None = None) -> Iterator[bytes]:
        """The bytes of an object, or a span of them, which is not empty.

        Raises:
            IntegrityError: there is no such object, or it is shorter.
        """
        ranged = {} if span is None else {"Range": f"bytes={span[0]}-{span[1] - 1}"}
        with self._faults():
            body = self._opened(key, ranged)
            try:
                for chunk in body.iter_chunks(READ_BYTES):
                    self._go_on()
                    yield chunk
            finally:
                body.close()

    def _opened(self, key: str, ranged: Mapping[str, str]) -> Any:
        from botocore.exceptions import ClientError

        try:
            return self._client.get_object(**self._at(key), **ranged)["Body"]
        except ClientError as error:
            if (code := error.response.get("Error", {}).get("Code")) not in LOST:
                raise
            asked = ranged.get("Range", "all bytes")
            raise IntegrityError(
                f"Expected {asked} of {key} in {self}, found none: {code}.", "send it again"
            ) from error

    def delete(self, key: str) -> None:
        """Removes an object, by one request that is over after `timeouts.STORE_BRIEF_S` for the connection and as much for the
        answer."""
        with self._faults():
            self._brief.delete_object(**self._at(key))

    def copy(self, source: str, target: str, tag: str) -> None:
        """Copies an object within the service, if it still has that tag. The copy appears whole or not at all."""
        from boto3.s3.transfer import TransferConfig

        settings = TransferConfig(multipart_threshold=COPY_BYTES, multipart_chunksize=COPY_BYTES)
        only = {"CopySourceIfMatch": tag}
        with self._faults():
            self._client.copy(self._at(source), **self._at(target), ExtraArgs=only, Config=settings)

    def listed(self, below: str = "") -> Iterator[tuple[str, int]]:
        """(key without the prefix, bytes) of all objects whose key begins with `below`, ascending."""
        with self._faults():
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._place.bucket, Prefix=self._place.prefix + below):
                for entry in page.get("Contents", ()):
                    yield entry["Key"].removeprefix(self._place.prefix), int(entry["Size"])

    def signed(self, key: str) -> str:
        """An address at which anybody can get the object for `timeouts.SIGNED_S`; made without asking the service."""
        with self._faults():
            return str(self._client.generate_presigned_url("get_object", self._at(key), timeouts.SIGNED_S))

    # -- multipart uploads ----------------------------------------------------------------------------------------------

    def begin(self, key: str) -> MultipartUpload:
        """Begins a multipart upload."""
        with self._faults():
            return MultipartUpload(key, str(self._client.create_multipart_upload(**self._at(key))["UploadId"]))

    def uploads(self, below: str) -> list[MultipartUpload]:
        """Those under way of keys that begin with `below`, the oldest first. Some services list those of a whole key alone."""
        found = []
        with self._faults():
            pages = self._client.get_paginator("list_multipart_uploads")
            for page in pages.paginate(Bucket=self._place.bucket, Prefix=self._place.prefix + below):
                for entry in page.get("Uploads", ()):
                    key = entry["Key"].removeprefix(self._place.prefix)
                    found.append((entry["Initiated"], MultipartUpload(key, entry["UploadId"])))
        return [upload for _, upload in sorted(found)]

    def parts(self, upload: MultipartUpload) -> dict[int, StoredPart]:
        """The parts that are there by their numbers; none if the upload is over."""
        found: dict[int, StoredPart] = {}
        with self._faults(), self._over():
            pages = self._client.get_paginator("list_parts")
            for page in pages.paginate(**self._at(upload.key), UploadId=upload.number):
                for entry in page.get("Parts", ()):
                    found[int(entry["PartNumber"])] = StoredPart(int(entry["Size"]), str(entry["ETag"]))
        return found

    def signed_part(self, upload: MultipartUpload, number: int) -> str:
        """An address at which anybody can put that part for `timeouts.SIGNED_S`; made without asking the service."""
        what = {**self._at(upload.key), "UploadId": upload.number, "PartNumber": number}
        with self._faults():
            return str(self._client.generate_presigned_url("upload_part", what, timeouts.SIGNED_S))

    def complete(self, upload: MultipartUpload, parts: Mapping[int, StoredPart]) -> None:
        """Makes the object of just these parts; nothing happens if the upload is over or the parts are others by now."""
        listed = [{"PartNumber": number, "ETag": part.tag} for number, part in sorted(parts.items())]
        with self._faults(), self._over():
            self._client.complete_multipart_upload(
                **self._at(upload.key), UploadId=upload.number, MultipartUpload={"Parts": listed}
            )

    def abort(self, upload: MultipartUpload) -> None:
        """Throws the upload and its parts away; it may be over."""
        with self._faults(), self._over():
            self._client.abort_multipart_upload(**self._at(upload.key), UploadId=upload.number)

    @contextmanager
    def _over(self) -> Iterator[None]:
        """Takes note that an upload is over, by leaving the block."""
        from botocore.exceptions import ClientError

        try:
            yield
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") not in GONE:
                raise

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self._place.bucket, "Key": self._place.prefix + key}

    @contextmanager
    def _faults(self) -> Iterator[None]:
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, Boto3Error, ClientError) as error:
            raise fault(str(self), error) from error
