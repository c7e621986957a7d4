"""Whose run a coordinator's directory is: with PostgreSQL its name does not say that, and two runs in one directory would
remove each other's blobs as ones that nothing refers to.

    run.json    name and beginning of the run, as its database has them; written once
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from crosstrain.disk import disk_faults
from crosstrain.errors import UsageError
from crosstrain.storage import run_store

OWNER = "run.json"


def require_own(directory: Path, connection: Connection) -> None:
    """Marks the directory as that of the run in this database, unless it is marked. A database of SQLite is in the directory, and
    says as much.

    Raises:
        UsageError: it is another run's.
        EnvironmentFault: it cannot be written.
    """
    if connection.dialect.name == "sqlite":
        return
    run = run_store.load(connection)
    assert run is not None
    mine = {"name": run["name"], "created_at": run["created_at"]}
    path = directory / OWNER
    found = _read(path)
    if found is None:
        with disk_faults(path):
            directory.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(mine))
    elif found != mine:
        raise UsageError(
            f"Expected the directory {directory} of run {mine['name']}, begun at {mine['created_at']} ms, found one of run "
            f"{found.get('name')}, begun at {found.get('created_at')} ms: each would remove the other's blobs.",
            f"set `coordinator.dir` to a directory of its own; if that other run is gone, remove {directory}",
        )


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def clear_work(work: Path) -> None:
    """Removes what coordinators of earlier terms left that they were making. It is not shared between terms: one that is superseded
    in the middle of a merge must not write into its successor's files."""
    shutil.rmtree(work, ignore_errors=True)
