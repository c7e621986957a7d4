"""What `wire.compress` makes of files that are there anyway: bytes, and processor time at both ends."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from crosstrain.storage.byte_planes import PackedFile, pack


@dataclass
class Packing:
    """Totals over the files given.

    Attributes:
        pack_s, unpack_s: processor seconds, SHA-256 and file included.
    """

    raw: int = 0
    packed: int = 0
    pack_s: float = 0.0
    unpack_s: float = 0.0

    def add(self, path: Path, width: int) -> None:
        """Packs and unpacks a file of elements of `width` bytes, which must come out as it was."""
        packed, again = path.with_name(path.name + ".packed"), path.with_name(path.name + ".again")
        begun = time.process_time()
        pack(path, packed, width)
        made = time.process_time()
        with PackedFile(packed, path.stat().st_size) as file:
            file.unpack(again, durable=False)
        self.unpack_s += time.process_time() - made
        self.pack_s += made - begun
        if again.read_bytes() != path.read_bytes():
            raise AssertionError(f"{path} is not what it was")
        self.raw += path.stat().st_size
        self.packed += packed.stat().st_size
        packed.unlink()
        again.unlink()

    def row(self, name: str) -> dict[str, float]:
        """Ratio of raw to packed, and raw megabytes per processor second of packing and unpacking."""
        return {
            f"{name}_over_packed": self.raw / self.packed,
            f"{name}_packs_mb_s": self.raw / 1e6 / max(1e-9, self.pack_s),
            f"{name}_unpacks_mb_s": self.raw / 1e6 / max(1e-9, self.unpack_s),
        }
