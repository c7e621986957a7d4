"""How long jobs really wait: what forecasts are about, and what a plan is judged by."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from crosstrain.placement.shape import Shape
from crosstrain.simulation.queues.observed import shapes_of
from crosstrain.simulation.queues.probes import ProbeTable


class Truth(Protocol):
    """One site's queue."""

    def wait_s(self, shape: Shape, submitted_s: float) -> float:
        """True wait of a job, seconds.

        Raises:
            KeyError: the truth of this shape is not known.
        """
        ...


@dataclass(frozen=True, slots=True)
class ReplayedWaits:
    """Waits of a replayed log, known at the times of its probes; between two of them the wait is linear in time, so that a
    job submitted later never starts much earlier. After the last probe it stays as it is.

    Attributes:
        times_s: of the probes.
        waits_s: shape -> wait at each probe.
    """

    times_s: Sequence[float]
    waits_s: Mapping[Shape, Sequence[float]]

    @classmethod
    def of(cls, table: ProbeTable) -> ReplayedWaits:
        columns = {shape: table.wait_s[:, column].tolist() for column, shape in enumerate(shapes_of(table))}
        return cls(table.times_s.tolist(), columns)

    def wait_s(self, shape: Shape, submitted_s: float) -> float:
        waits, place = self.waits_s[shape], bisect_right(self.times_s, submitted_s)
        if place == 0 or place == len(self.times_s):
            return waits[0 if place == 0 else -1]
        before, after = self.times_s[place - 1], self.times_s[place]
        part = (submitted_s - before) / (after - before)
        return waits[place - 1] + part * (waits[place] - waits[place - 1])


@dataclass(frozen=True, slots=True)
class _Shifted:
    truth: Truth
    offset_s: float

    def wait_s(self, shape: Shape, submitted_s: float) -> float:
        return self.truth.wait_s(shape, self.offset_s + submitted_s)


def shifted(truth: Truth, offset_s: float) -> Truth:
    """The same queue on a clock that reads 0 when its own reads `offset_s`."""
    return _Shifted(truth, offset_s)
