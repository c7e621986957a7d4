"""What makes a name survive a power cut, and what to say when the disk does not let us."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from crosstrain.errors import EnvironmentFault

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


def _reason(error: OSError, path: Path) -> str | None:
    if error.errno == errno.ENOSPC and _takes_no_files(path):
        return "its file system takes no more files, though it has bytes left (df -i)"
    return _REASONS.get(error.errno or 0)


def _takes_no_files(path: Path) -> bool:
    place = next(above for above in (path, *path.absolute().parents) if above.exists())
    found = os.statvfs(place)
    return found.f_files > 0 and found.f_favail == 0 and found.f_bavail > 0


def sync_directory(directory: Path) -> None:
    """Makes the names in `directory` durable; a rename alone may be lost in a power cut."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def disk_faults(path: Path, every: bool = False) -> Iterator[None]:
    """Turns the operating system's refusals to write at `path` into an error meant for people.

    Args:
        every: all other errors too: beside a connection, an OSError would be taken for one of the network and repeated.

    Raises:
        EnvironmentFault: disk full, over quota, read-only or not permitted. Any other OSError passes unchanged.
    """
    try:
        yield
    except OSError as error:
        reason = _reason(error, path) or (str(error.strerror or error) if every else None)
        if reason is None:
            raise
        raise EnvironmentFault(
            f"Writing {path} failed: {reason}.", "free space or choose another directory, then start again"
        ) from error
