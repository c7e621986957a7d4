"""Sites whose trainer's inner state is spoilt, as by a node that computes wrong: every phase from then on gives NaN.

The coordinator refuses it, and the site begins again with a fresh inner state: it does not go on from the state that spoilt it,
neither in its memory nor on its disk.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from crosstrain.domain.ids import Generation
from crosstrain.simulation import fault_run
from crosstrain.simulation import trainer as simulated
from crosstrain.simulation.fault_run import run_schedule
from crosstrain.simulation.faults import Schedule, SiteTraits
from crosstrain.simulation.network import Weather
from crosstrain.site.counting import CountingTrainer
from crosstrain.site.trainer import Position, Sink


class Spoilt(CountingTrainer):
    """Its inner state is spoilt at the checkpoint number `at`, in memory, in it, and in all that are written from then on."""

    at: ClassVar[int]
    saves: ClassVar[int]
    always: ClassVar[bool]
    spoilt = False
    _saved: ClassVar[set[Path]] = set()

    def load(self, weights: Path, generation: Generation, moved: bool = False, fresh: bool = False) -> None:
        super().load(weights, generation, moved, fresh)
        self.spoilt = self.spoilt and not fresh

    def save(self, directory: Path) -> None:
        super().save(directory)
        self._count()
        (self._saved.add if self.spoilt else self._saved.discard)(directory)

    def restore(self, directory: Path) -> Position:
        self.spoilt = directory in self._saved
        return super().restore(directory)

    def export(self, sink: Sink) -> None:
        spoil = self.spoilt or self.always
        super().export(lambda name, tensor: sink(name, np.full_like(tensor, np.nan) if spoil else tensor))

    @classmethod
    def begin_with(cls, at: int, always: bool = False) -> None:
        cls.at, cls.saves, cls.always, cls._saved = at, 0, always, set()

    def _count(self) -> None:
        type(self).saves += 1
        self.spoilt = self.spoilt or self.saves == self.at


def schedule(overlap: bool) -> Schedule:
    """One site, six rounds, no faults."""
    site = SiteTraits("alpha", 2, 2.0, 0.0, Weather(3.0))
    return Schedule(
        seed=1, windows=60, block_windows=2, inner_steps=4, rounds=6, epochs=3, checkpoint_s=1000.0, cutoff_s=3000.0,
        start_sites=1, sites=(site,), faults=(), overlap=overlap,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def spoilt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "CountingTrainer", Spoilt)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_spoilt_inner_state_costs_one_phase(overlap: bool) -> None:
    Spoilt.begin_with(at=3)
    outcome = run_schedule(schedule(overlap))
    assert (outcome.violation, outcome.generations) == (None, 7)
    assert Spoilt.saves >= 7


def test_a_trainer_that_stays_spoilt_ends_its_session_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_run, "CALM_S", 600)  # after which the run is given up
    Spoilt.begin_with(at=1, always=True)
    outcome = run_schedule(schedule(overlap=False))
    assert outcome.generations == 1
    assert outcome.violation is not None and outcome.violation.guarantee == "liveness"
    assert "alpha gave up: Session" in outcome.violation.what
    assert "refused for what they held" in outcome.violation.what
