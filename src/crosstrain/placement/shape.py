"""What can be submitted at a site."""

from __future__ import annotations

from dataclasses import dataclass

from crosstrain.domain.plural import counted

HOUR_S = 3600.0


def time_limit(seconds: float) -> str:
    """A job's time limit for people: minutes below an hour, else hours; two limits that differ by a minute read differently."""
    return f"{round(seconds / 60, 2):g} min" if seconds < HOUR_S else f"{round(seconds / HOUR_S, 2):g} h"


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """The size of a job.

    Attributes:
        partition: queue that it is submitted to.
        nodes: whole nodes.
        gpus: accelerators on each node; 0 asks for none.
        walltime_s: time limit of the job, seconds.
    """

    partition: str
    nodes: int
    gpus: int
    walltime_s: int

    @property
    def node_hours(self) -> float:
        """What a job of this shape is charged when it runs to its limit."""
        return self.nodes * self.walltime_s / HOUR_S

    def __str__(self) -> str:
        gpus = f" x {counted(self.gpus, 'GPU')}" if self.gpus else ""
        return f"{self.partition} {counted(self.nodes, 'node')}{gpus} x {time_limit(self.walltime_s)}"
