"""Writing all of something, where there is room for it and a directory to write in."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from crosstrain.domain.room import Room
from crosstrain.errors import EnvironmentFault
from crosstrain.pieces import write_at

HEADROOM = 64 << 20
"""Bytes left free beside what a write needs: the ledger shares the disk and must still be able to grow."""


def write_all(handle: int, data: memoryview, offset: int) -> None:
    """Writes all of `data` (bytes) to the file descriptor, from `offset` on."""
    while data:
        count = write_at(handle, data, offset)
        data, offset = data[count:], offset + count


def make_directory(directory: Path, setting: str) -> Path:
    """Makes a directory that this process can write.

    Raises:
        EnvironmentFault: it cannot.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / ".writable"
        probe.write_bytes(b"")
        probe.unlink()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else error
        raise EnvironmentFault(
            f"The directory {directory} cannot be written: {reason}.",
            f"set `{setting}` in RUN.toml to a writable directory",
        ) from error
    return directory


def require_space(directory: Path, size: int, headroom: int = HEADROOM) -> None:
    """Refuses a write of `size` bytes into `directory` before it begins.

    Raises:
        EnvironmentFault: the file system cannot hold `size` bytes and keep `headroom` bytes free.
    """
    free = shutil.disk_usage(directory).free
    if free < size + headroom:
        raise EnvironmentFault(
            f"{directory} needs {size + headroom:,} bytes free ({size:,} to write), found {free:,}.",
            "free space or choose another directory, then start again",
        )


def room_of(directory: Path) -> Room:
    """What the file system of `directory` has left for this user; of one that is to be made, that of the nearest above it."""
    place = directory.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        found = os.statvfs(place)
    except OSError:
        return Room(None, None)
    return Room(found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None)
