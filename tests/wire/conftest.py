"""What the tests of transfers share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.http_serving import serving
from tests.wire.bench import DATA, PART, Bench


@pytest.fixture
def bench(fast_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Parts of 900 bytes, so that small blobs have several."""
    monkeypatch.setattr("crosstrain.wire.transfer.PART_BYTES", PART)
    monkeypatch.setattr("crosstrain.wire.transfer.LEAST_BYTES", 100)
    made = Bench(fast_tmp)
    made.world.put(DATA)
    with serving(made.line) as made.url:
        yield made
    made.world.database.close()


@pytest.fixture
def empty(bench: Bench) -> Bench:
    """The coordinator holds nothing."""
    bench.reset()
    return bench
