"""Directories that are there as a whole or not at all: the form of a trainer's saved states.

A state is written beside its place as `NAME.partial`; the marker, written last, holds the record of the state and the size
of every file; the rename makes it visible. So a directory without a marker, or with files of other sizes, is not a state.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from crosstrain.disk import disk_faults, sync_directory
from crosstrain.errors import EnvironmentFault, IntegrityError

MARKER = "complete.json"


def begin(directory: Path) -> Path:
    """Makes the empty directory to write the files into, beside `directory`; what a crash left of it is removed.

    Raises:
        EnvironmentFault: `directory` exists already, or cannot be made.
    """
    if directory.exists():
        raise EnvironmentFault(f"{directory} exists already.", "give each saved state a directory of its own")
    partial = partial_of(directory)
    with disk_faults(partial):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    return partial


def partial_of(directory: Path) -> Path:
    return directory.with_name(directory.name + ".partial")


def commit(directory: Path, record: dict[str, Any]) -> None:
    """Completes what `begin` began: marker, fsync of everything, rename.

    Args:
        record: what `read` shall return; plain JSON values.
    """
    partial = partial_of(directory)
    with disk_faults(partial):
        marker = partial / MARKER
        marker.write_text(json.dumps({"record": record, "sizes": _sizes(partial)}, sort_keys=True))
        for path in partial.iterdir():
            _sync(path)
        sync_directory(partial)
        partial.rename(directory)
        sync_directory(directory.parent)


def read(directory: Path) -> dict[str, Any]:
    """The record of a complete state.

    Raises:
        IntegrityError: there is none, or a file is missing or has another size than when it was written.
    """
    try:
        document = json.loads((directory / MARKER).read_text())
        record, sizes = document["record"], document["sizes"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise IntegrityError(f"{directory} holds no complete saved state: {error!r}.", "use an earlier one") from error
    found = _sizes(directory)
    for name, size in sizes.items():
        if found.get(name) != size:
            raise IntegrityError(
                f"{directory / name}: expected {size} bytes, found {found.get(name, 'no file')}.", "use an earlier one"
            )
    return dict(record)


def _sizes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in directory.iterdir() if path.name != MARKER}


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
