from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.databases import Backend
from tests.fakes import World, build_world

from crosstrain.batch.command import run


@pytest.fixture
def world(fast_tmp: Path) -> Iterator[World]:
    """A run of 39 windows in 20 blocks of two, a full phase of four blocks, and nobody there yet."""
    made = build_world(fast_tmp)
    yield made
    made.database.close()


@pytest.fixture
def world_of_each(fast_tmp: Path, new_backend: Callable[[], Backend]) -> World:
    """The same run on each kind of database."""
    return build_world(fast_tmp, database=new_backend().open())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 160 MiB."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root may mount a file system that fills up")
    made = run(["mount", "-t", "tmpfs", "-o", "size=160m", "none", str(tmp_path)], timeout=10)
    if made.code:
        pytest.skip(f"mount says: {made.stderr.strip()}")
    yield tmp_path
    run(["umount", str(tmp_path)], timeout=10)
