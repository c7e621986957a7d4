"""What makes a file survive a power cut, and what to say when the disk does not let us."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from crosstrain.domain.room import Room
from crosstrain.errors import EnvironmentFault

HEADROOM = 64 << 20
"""Bytes left free beside what a write needs: the ledger shares the disk and must still be able to grow."""

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota is used up",
    errno.ENOENT: "the directory does not exist",
    errno.ENOTDIR: "a file is where a directory should be",
    errno.EEXIST: "a file is where a directory should be",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission is denied",
    errno.EPERM: "permission is denied",
    errno.EXDEV: "the file would have to move to another file system",
    errno.ENOLCK: "the file system has no locks",
    errno.ENOSYS: "the file system has no locks",
}


def sync_directory(directory: Path) -> None:
    """Makes the names in `directory` durable; a rename alone may be lost in a power cut."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_all(handle: int, data: memoryview) -> None:
    """Writes all of `data` (bytes) to the file descriptor; one write(2) takes at most 2 GiB and may take less."""
    while data:
        data = data[os.write(handle, data) :]


@contextlib.contextmanager
def disk_faults(path: Path) -> Iterator[None]:
    """Turns the operating system's refusals to write at `path` into an error meant for people.

    Raises:
        EnvironmentFault: disk full, over quota, read-only or not permitted. Any other OSError passes unchanged.
    """
    try:
        yield
    except OSError as error:
        reason = _REASONS.get(error.errno or 0)
        if reason is None:
            raise
        raise EnvironmentFault(
            f"Writing {path} failed: {reason}.", "free space or choose another directory, then start again"
        ) from error


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
