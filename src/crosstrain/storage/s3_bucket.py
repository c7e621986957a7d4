"""The requests of an S3-compatible service that blobs need, by boto3 (extra `s3`).

Credentials come from where AWS's own tools take them: `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, `AWS_PROFILE`,
~/.aws, or the role of the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from crosstrain.errors import EnvironmentFault, UsageError

READ_BYTES = 1 << 20
ATTEMPTS = 5
"""Of one request, by boto3; what fails after that is tried again by whoever asked."""
SIGNED_S = 12 * 3600
"""How long a signed address is good; a download that takes longer asks for another."""


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


class S3Bucket:
    """Keys below a prefix of one bucket; for several threads.

    Raises:
        EnvironmentFault: from any method, the service refuses or does not answer.
        UsageError: boto3 is not installed.
    """

    def __init__(self, place: Place) -> None:
        try:
            import boto3
            from botocore.config import Config
        except ImportError as error:
            raise UsageError(
                "`coordinator.objects` needs boto3, which is not installed.", "pip install 'crosstrain[s3]'"
            ) from error
        self._place = place
        settings = Config(
            signature_version="s3v4",
            retries={"max_attempts": ATTEMPTS, "mode": "standard"},
            s3={"addressing_style": "path" if place.endpoint else "auto"},
            # Not every compatible service knows the newer checksums; the SHA-256 is checked by us.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        with self._faults():
            session = boto3.session.Session()
            self._client: Any = session.client(
                "s3", endpoint_url=place.endpoint or None, region_name=place.region or None, config=settings
            )

    def __str__(self) -> str:
        return f"s3://{self._place.bucket}/{self._place.prefix}"

    def size(self, key: str) -> int | None:
        """Bytes of an object, None if there is none."""
        from botocore.exceptions import ClientError

        with self._faults():
            try:
                return int(self._client.head_object(**self._at(key))["ContentLength"])
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                    return None
                raise

    def put(self, key: str, path: Path) -> None:
        """Uploads a file; a large one in parts, several at once. The object appears whole or not at all."""
        with self._faults():
            self._client.upload_file(str(path), self._place.bucket, self._place.prefix + key)

    def read(self, key: str) -> Iterator[bytes]:
        """The bytes of an object."""
        with self._faults():
            body = self._client.get_object(**self._at(key))["Body"]
            try:
                yield from body.iter_chunks(READ_BYTES)
            finally:
                body.close()

    def delete(self, key: str) -> None:
        with self._faults():
            self._client.delete_object(**self._at(key))

    def listed(self) -> Iterator[tuple[str, int]]:
        """(key without the prefix, bytes) of all objects, ascending."""
        with self._faults():
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._place.bucket, Prefix=self._place.prefix):
                for entry in page.get("Contents", ()):
                    yield entry["Key"].removeprefix(self._place.prefix), int(entry["Size"])

    def signed(self, key: str) -> str:
        """An address at which anybody can get the object for `SIGNED_S`; made without asking the service."""
        with self._faults():
            return str(self._client.generate_presigned_url("get_object", self._at(key), SIGNED_S))

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self._place.bucket, "Key": self._place.prefix + key}

    @contextmanager
    def _faults(self) -> Iterator[None]:
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, Boto3Error, ClientError) as error:
            raise EnvironmentFault(
                f"The object store {self} fails: {error}.",
                "see `coordinator.objects`, its endpoint and region in RUN.toml, and the AWS credentials",
            ) from error
