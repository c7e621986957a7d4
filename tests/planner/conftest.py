from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes import World, build_world


@pytest.fixture
def world(fast_tmp: Path) -> Iterator[World]:
    made = build_world(fast_tmp)
    yield made
    made.database.close()
