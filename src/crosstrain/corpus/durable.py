"""Writing files so that a reader finds all of one or none of it: temporary name, fsync, rename, fsync of the directory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from crosstrain.disk import sync_directory
from crosstrain.errors import EnvironmentFault


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns a failed write below `path` into a message.

    Raises:
        EnvironmentFault: the operating system refused.
    """
    try:
        yield
    except OSError as error:
        raise EnvironmentFault(
            f"{path} cannot be written: {error.strerror or error}.",
            "free some space or choose another directory with --out; what is finished is used again by the same command",
        ) from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the name `path` when the block ends without an exception, and leaves nothing otherwise.

    The temporary name carries the process id: two workers may write the same content at once.

    Raises:
        EnvironmentFault: the file cannot be written.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    with writing(path):
        try:
            with temporary.open("w+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        sync_directory(path.parent)


def write_atomically(path: Path, content: bytes) -> None:
    """Replaces the file at `path`.

    Raises:
        EnvironmentFault: the file cannot be written.
    """
    with replacing(path) as file:
        file.write(content)
