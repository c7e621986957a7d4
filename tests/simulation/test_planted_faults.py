"""The invariants of the simulation can fail: each mistake planted into production code is caught by one of them."""

from __future__ import annotations

import sys

import pytest
from tests.simulation.plants import PLANTS

from crosstrain.simulation.fault_run import run_schedule
from crosstrain.simulation.faults import draw_schedule

SEEDS = 200
HOURS = 0.25


@pytest.mark.parametrize("name", PLANTS)
def test_planted_fault_is_caught_within_200_seeds(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant, guarantees, seed = PLANTS[name]
    plant(monkeypatch)
    # From a seed that is known to catch it, so that the suite is quick; the first 200 seeds find every one.
    for number in range(seed, seed + SEEDS):
        violation = run_schedule(draw_schedule(number, HOURS)).violation
        if violation is not None:
            with capsys.disabled():
                sys.stdout.write(f"\nplanted: {name}; caught by {violation.guarantee} at seed {number}")
            assert violation.guarantee in guarantees
            return
    pytest.fail(f"{SEEDS} seeds from {seed} on did not catch it: {name}")
