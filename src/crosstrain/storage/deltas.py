"""The deltas in an object store, opened as they are to be read: where they travel packed (`wire.compress`), from a scratch file.

A delta is unpacked when it is judged, and what was accepted is merged from the same file. Scratch files are only ever a copy: they
may go at any time, and whoever opens the delta next makes them again.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from crosstrain.disk import disk_faults
from crosstrain.domain.ids import Digest
from crosstrain.storage.byte_planes import PackedFile
from crosstrain.storage.delta_file import Codec, DeltaFile, file_bytes
from crosstrain.storage.durable import require_space
from crosstrain.storage.object_store import ObjectStore
from crosstrain.storage.weights_header import Entry

Compress = Literal["none", "planes"]

SLACK = 1 << 20
"""Bytes that a delta may be larger than its model's: what is of another model or codec is named better when it can be read."""


class Deltas:
    """Opens the deltas of a run; methods may be called from several threads.

    Args:
        scratch: directory for unpacked deltas, made when it is needed. What a killed process left there is for the caller to
            remove.
    """

    def __init__(self, objects: ObjectStore, codec: Codec, compress: Compress, scratch: Path) -> None:
        self._objects, self._codec, self._packed, self._scratch = objects, codec, compress == "planes", scratch
        self._lock = threading.Lock()

    def open(self, digest: Digest, model: Sequence[Entry]) -> DeltaFile:
        """A delta by the digest of the blob that came.

        Args:
            model: the model's tensors; a packed file of much more than their delta is not unpacked.

        Raises:
            IntegrityError: the blob is not there, damaged, or of another codec, packing or version.
            EnvironmentFault: the disk cannot hold the unpacked delta.
        """
        path = self._objects.path(digest)
        if not self._packed:
            return DeltaFile(path, self._codec)
        place = self._scratch / digest
        with self._lock:
            if place.exists():
                return DeltaFile(place, self._codec)
        with disk_faults(place), PackedFile(path, file_bytes(model, self._codec) + SLACK) as packed:
            self._scratch.mkdir(parents=True, exist_ok=True)
            require_space(self._scratch, packed.size)
            # In a directory of its own: the same delta may be opened twice at once.
            with tempfile.TemporaryDirectory(dir=self._scratch) as mine:
                made = Path(mine) / digest
                packed.unpack(made, durable=False)
                with self._lock:  # so that `forget` does not take it away before it is open
                    made.replace(place)
                    return DeltaFile(place, self._codec)

    def forget(self, digest: Digest) -> None:
        """Removes the scratch file of a delta that will not be read again; while it is open it stays readable."""
        with self._lock:
            (self._scratch / digest).unlink(missing_ok=True)

    def forget_all(self) -> None:
        """As `forget`, of every delta."""
        with self._lock:
            for path in self._scratch.glob("*"):
                if path.is_file():  # directories are of deltas that are being unpacked
                    path.unlink()
