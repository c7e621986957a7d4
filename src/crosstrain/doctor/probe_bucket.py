"""Tries the bucket of the run file, as the coordinator would use it; what it puts there it removes."""

from __future__ import annotations

from crosstrain.config import CoordinatorSection
from crosstrain.doctor.observations import BucketSeen
from crosstrain.errors import CrosstrainError
from crosstrain.storage.s3_bucket import S3Bucket, has_credentials, place_of
from crosstrain.storage.s3_trial import try_out


def try_bucket(section: CoordinatorSection) -> BucketSeen:
    """Does once what a run does with blobs."""
    name = section.objects
    try:
        place = place_of(section.objects, section.objects_endpoint, section.objects_region)
        if not has_credentials():
            return BucketSeen(name, tried=False)
        try_out(S3Bucket(place))
    except CrosstrainError as error:
        return BucketSeen(name, error=error.message, hint=error.hint)
    return BucketSeen(name)
