"""Brings a generation's weights to the site's disk."""

from __future__ import annotations

import sys
from pathlib import Path

from crosstrain.domain.ids import Digest
from crosstrain.errors import IntegrityError
from crosstrain.site.spool import Spool
from crosstrain.storage.byte_planes import PackedFile
from crosstrain.storage.durable import require_space
from crosstrain.wire.blobs import Blobs, Progress

MISSING = "missing-blob"
"""Kind of refusal of a blob that the coordinator does not have, or has no more."""


def fetch(
    blobs: Blobs, spool: Spool, weights: Digest, packed: Digest | None, deadline_s: float, progress: Progress
) -> Path:
    """The file of the weights, downloaded unless it is there.

    Args:
        packed: the blob that holds them packed, if they travel so (`wire.compress`).

    Raises:
        IntegrityError: they are not what the coordinator named.
        Refused, Unreachable, EnvironmentFault: as `Blobs.download`.
    """
    path, arrived = spool.base(weights), spool.packed_base(weights)
    if not path.exists():
        if packed is None:
            blobs.download(weights, path, deadline_s, progress)
        else:
            if not arrived.exists():  # else an earlier session was killed while it unpacked
                blobs.download(packed, arrived, deadline_s, progress)
            _unpack(arrived, weights, path)
    arrived.unlink(missing_ok=True)
    return path


def _unpack(arrived: Path, weights: Digest, path: Path) -> None:
    try:
        # Who named it by its digest is whose weights are trained: room is all that limits it.
        with PackedFile(arrived, sys.maxsize) as file:
            if file.digest != weights:
                raise IntegrityError(f"{arrived}: expected the weights {weights} packed, found {file.digest}.")
            require_space(path.parent, file.size)
            file.unpack(path, durable=True)
    except IntegrityError:
        arrived.unlink(missing_ok=True)  # so that the next attempt fetches it again
        raise
