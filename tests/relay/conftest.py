from __future__ import annotations

from pathlib import Path

import pytest
from tests.relay.bench import Bench


@pytest.fixture
def bench(fast_tmp: Path) -> Bench:
    return Bench(fast_tmp)
