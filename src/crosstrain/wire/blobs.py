"""What a site needs of whoever moves its weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from crosstrain.domain.ids import Digest

Progress = Callable[[int, int], None]
"""Called with (bytes there, bytes in all)."""


class Blobs(Protocol):
    """Moves blobs between a file and the coordinator: `BlobClient` by itself, `MailboxBlobs` through a relay."""

    def upload(self, path: Path, digest: Digest, deadline_s: float, progress: Progress) -> None:
        """Makes the coordinator hold the blob. Raises Refused, IntegrityError or Unreachable."""
        ...

    def download(self, digest: Digest, target: Path, deadline_s: float, progress: Progress) -> None:
        """Puts the blob at `target`, complete or not at all. Raises Refused, IntegrityError or Unreachable."""
        ...

    def close(self) -> None: ...
