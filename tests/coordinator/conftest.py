from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.databases import Backend
from tests.fakes import World, build_world


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
