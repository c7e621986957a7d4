"""A bucket is tried before it is needed: one that is missing, or refuses something, is told at once, with what to do."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
from botocore.exceptions import ClientError, NoCredentialsError, ReadTimeoutError
from starlette.responses import Response
from tests import s3 as s3_server
from tests.http_serving import Answer, Request
from tests.store_front import fronting

from crosstrain.demo.prepare import free_port
from crosstrain.errors import EnvironmentFault
from crosstrain.storage.s3_bucket import Place, S3Bucket
from crosstrain.storage.s3_faults import StoreAway, fault
from crosstrain.storage.s3_trial import required, try_out

Is = Callable[[Request], bool]


@s3_server.on_every_server
def test_bucket_that_lets_us_is_left_as_it_was(s3: s3_server.Server) -> None:
    bucket = S3Bucket(s3.place())
    required(bucket)
    assert (list(bucket.listed()), bucket.uploads("")) == ([], [])


@s3_server.on_every_server
def test_bucket_that_is_missing_is_told(s3: s3_server.Server) -> None:
    with pytest.raises(EnvironmentFault, match=r"s3://nowhere/x/ refuses: .* NoSuchBucket") as caught:
        required(S3Bucket(Place("nowhere", "x/", s3.url, "us-east-1")))
    assert "create the bucket" in caught.value.hint


@pytest.mark.parametrize("s3", ["ceph"], indirect=True)
@pytest.mark.parametrize(
    ("name", "secret", "code"), [("test", "wrong", "SignatureDoesNotMatch"), ("nobody", "", "InvalidAccessKeyId")]
)
def test_wrong_credentials_are_told(
    s3: s3_server.Server, monkeypatch: pytest.MonkeyPatch, name: str, secret: str, code: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", name)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret or "unknown")
    with pytest.raises(EnvironmentFault, match=code) as caught:
        required(S3Bucket(s3.place()))
    assert "AWS_SECRET_ACCESS_KEY" in caught.value.hint


REFUSED: dict[str, Is] = {
    "PutObject": lambda request: request.method == "PUT" and "x-amz-copy-source" not in request.headers,
    "CopyObject": lambda request: "x-amz-copy-source" in request.headers,
    "GetObject": lambda request: request.method == "GET" and not request.query and request.path.count("/") > 2,
    "HeadObject": lambda request: request.method == "HEAD",
    "DeleteObject": lambda request: request.method == "DELETE" and not request.query,
    "ListObjectsV2": lambda request: "list-type=2" in request.query,
    "CreateMultipartUpload": lambda request: request.method == "POST" and "uploads" in request.query,
    "ListMultipartUploads": lambda request: request.method == "GET" and "uploads" in request.query,
    "ListParts": lambda request: request.method == "GET" and "uploadId" in request.query,
    "AbortMultipartUpload": lambda request: request.method == "DELETE" and "uploadId" in request.query,
}


@pytest.mark.parametrize("what", REFUSED)
def test_every_right_that_is_missing_is_told(s3: s3_server.Server, what: str) -> None:
    def instead(request: Request) -> Answer:
        refusal = Response("<Error><Code>AccessDenied</Code></Error>", 403, {"connection": "close"})
        return refusal if REFUSED[what](request) else None

    with fronting(s3.url) as front:
        front.known = True
        front.line.instead = instead
        with pytest.raises(EnvironmentFault, match=f"refuses: {what} is answered with (AccessDenied|403)") as caught:
            required(S3Bucket(replace(s3.place(), endpoint=front.url)))
    assert not isinstance(caught.value, StoreAway)
    assert "AbortMultipartUpload" in caught.value.hint


def test_service_that_gives_other_bytes_back_is_told(s3: s3_server.Server) -> None:
    with fronting(s3.url) as front:
        front.known = True
        front.line.instead = lambda request: Response(b"something else") if REFUSED["GetObject"](request) else None
        with pytest.raises(EnvironmentFault, match=f"found {b'something else'.hex()}"):
            try_out(S3Bucket(replace(s3.place(), endpoint=front.url)))


def test_service_that_is_away_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    required(S3Bucket(Place("runs", "", f"http://127.0.0.1:{free_port()}", "us-east-1")))
    assert "The object store s3://runs/ does not answer: Could not connect" in caplog.text
    assert "wait for it" in caplog.text


def said(code: str, status: int) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject")


@pytest.mark.parametrize(
    ("error", "away", "hint"),
    [
        (said("SlowDown", 503), True, "tried again"),
        (said("InternalError", 500), True, "tried again"),
        (said("429", 429), True, "tried again"),
        (ReadTimeoutError(endpoint_url="http://store"), True, "tried again"),
        (said("ExpiredToken", 400), False, "renew the credentials"),
        (said("RequestTimeTooSkewed", 403), False, "clock"),
        (said("PermanentRedirect", 301), False, "objects_region"),
        (said("EntityTooSmall", 400), False, "endpoint and region"),
        (NoCredentialsError(), False, "AWS_ACCESS_KEY_ID"),
    ],
)
def test_faults_say_whether_to_wait_or_what_to_do(error: Exception, away: bool, hint: str) -> None:
    found = fault("s3://runs/", error)
    assert isinstance(found, StoreAway) is away
    assert found.message.startswith("The object store s3://runs/ ")
    assert hint in found.hint
