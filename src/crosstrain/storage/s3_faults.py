"""What a failed request to an S3-compatible service means, and what to do about it.

Codes: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
"""

from __future__ import annotations

from crosstrain.errors import EnvironmentFault

RIGHTS = (
    "the credentials must allow ListBucket and ListBucketMultipartUploads of the bucket, and GetObject, PutObject, "
    "DeleteObject, AbortMultipartUpload and ListMultipartUploadParts of what is in it"
)
_KEYS = "see AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, where the coordinator runs"
_ENDED = "renew the credentials, and start the coordinator again if it was given them in its environment"
_REGION = "correct `coordinator.objects_region` in RUN.toml"
HINTS = {
    "NoSuchBucket": "create the bucket, or correct `coordinator.objects` and its endpoint in RUN.toml",
    "AccessDenied": RIGHTS,
    "403": f"{RIGHTS}; {_KEYS}",  # of a HEAD, whose answer cannot say more
    "InvalidAccessKeyId": _KEYS,
    "SignatureDoesNotMatch": _KEYS,
    "ExpiredToken": _ENDED,
    "ExpiredTokenException": _ENDED,
    "InvalidToken": _ENDED,
    "TokenRefreshRequired": _ENDED,
    "RequestTimeTooSkewed": "set the clock of the coordinator's machine",
    "AuthorizationHeaderMalformed": _REGION,
    "PermanentRedirect": _REGION,
    "301": _REGION,
}
ELSE = "see `coordinator.objects`, its endpoint and region in RUN.toml, and the AWS credentials"
WAIT = "see whether the store runs, and its endpoint in RUN.toml; what needs it is tried again"
BUSY = frozenset({"RequestTimeout", "SlowDown", "TooManyRequests", "429"})


class StoreAway(EnvironmentFault):
    """The service does not answer, or asks to be left alone for a while."""


def fault(store: str, error: Exception) -> EnvironmentFault:
    """An error of boto3 for people.

    Args:
        store: its name.
    """
    from botocore.exceptions import ClientError, HTTPClientError, IncompleteReadError, NoCredentialsError
    from botocore.exceptions import ConnectionError as NoConnection

    cause = _cause(error)
    if isinstance(cause, ClientError):
        said = cause.response.get("Error", {})
        code = str(said.get("Code", "")) or "no reason"
        found = f"{cause.operation_name} is answered with {code}"
        if text := said.get("Message"):
            found += f": {str(text).rstrip('.')}"
        if code in BUSY or int(cause.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) >= 500:
            return StoreAway(f"The object store {store} cannot serve now: {found}.", WAIT)
        return EnvironmentFault(f"The object store {store} refuses: {found}.", HINTS.get(code, ELSE))
    if isinstance(cause, (NoConnection, HTTPClientError, IncompleteReadError)):
        return StoreAway(f"The object store {store} does not answer: {str(cause).rstrip('.')}.", WAIT)
    hint = _KEYS if isinstance(cause, NoCredentialsError) else ELSE
    return EnvironmentFault(f"The object store {store} cannot be used: {str(cause).rstrip('.')}.", hint)


def _cause(error: Exception) -> Exception:
    """What boto3's transfers wrap."""
    from boto3.exceptions import RetriesExceededError, S3UploadFailedError

    inner: object = error
    if isinstance(error, RetriesExceededError):
        inner = error.last_exception
    elif isinstance(error, S3UploadFailedError):
        inner = error.__context__
    return inner if isinstance(inner, Exception) else error
