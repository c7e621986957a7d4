"""Fixtures and settings for all tests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same examples every time: a failure in CI is a failure here. HYPOTHESIS_PROFILE=search looks for new ones.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]}
settings.register_profile("fixed", max_examples=25, derandomize=True, database=None, **_COMMON)
settings.register_profile("search", max_examples=1000, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

_MEMORY = Path("/dev/shm")


@pytest.fixture
def fast_tmp(tmp_path: Path) -> Iterator[Path]:
    """A directory where fsync costs nothing, for tests that write hundreds of blobs; `tmp_path` where there is none."""
    if not os.access(_MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="crosstrain-", dir=_MEMORY) as directory:
        yield Path(directory)
