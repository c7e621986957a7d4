"""Where `collect` and `submit` stand: one site's batch system, its journal, and the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from crosstrain.batch import job as batch
from crosstrain.batch.scheduler import BatchSystem
from crosstrain.batch_section import BatchSection
from crosstrain.clock import Clock
from crosstrain.collector.budget import Budget
from crosstrain.collector.journal import Journal
from crosstrain.collector.outbox import Outbox
from crosstrain.collector.tracking import Place
from crosstrain.domain.ids import Instant
from crosstrain.placement.shape import Shape
from crosstrain.wire.placement import OfferedBody, ShapeBody


@dataclass(frozen=True, slots=True)
class Post:
    """One site, ready to be asked.

    Attributes:
        run, site: names.
        run_file: RUN.toml; jobs run in its directory.
        windows_per_pass: of shapes that do not say.
        user: own name at the scheduler, None if it cannot be known from here.
        logs: where jobs write.
        draw: numbers in [0, 1) for jitter.
    """

    run: str
    site: str
    run_file: Path
    section: BatchSection
    windows_per_pass: int
    user: str | None
    system: BatchSystem
    journal: Journal
    outbox: Outbox
    logs: Path
    clock: Clock
    draw: Callable[[], float]

    @property
    def offered(self) -> tuple[OfferedBody, ...]:
        """All shapes of the run file."""
        return tuple(
            OfferedBody(
                shape=ShapeBody(partition=each.partition, nodes=each.nodes, gpus=each.gpus, walltime_s=each.walltime_s),
                tokens_per_s=each.tokens_per_s,
                windows_per_pass=each.windows_per_pass or self.windows_per_pass,
            )
            for each in self.section.shapes
        )

    @property
    def place(self) -> Place:
        shapes = [each.shape for each in self.offered]
        return Place(self.run, self.site, self.user, shapes, self.section.deadline_s)

    @property
    def budget(self) -> Budget:
        """What the scheduler may be asked."""
        return Budget(self.section.probe_every_s, self.section.shape_every_s, self.section.jitter)

    @property
    def award_ends(self) -> Instant | None:
        """The end of the award's last day, UTC."""
        if self.section.award_ends is None:
            return None
        days = self.section.award_ends.toordinal() + 1 - date(1970, 1, 1).toordinal()
        return Instant(86_400_000 * days)

    def asked(self, shape: ShapeBody) -> batch.Shape:
        """A shape as it is asked of the batch system."""
        section = self.section
        return batch.Shape(
            partition=shape.partition,
            nodes=shape.nodes,
            walltime_s=shape.walltime_s,
            gpus_per_node=shape.gpus,
            account=section.account,
            qos=section.qos,
            options=section.options,
        )


def shape_of(body: ShapeBody) -> Shape:
    """A shape as placement knows it."""
    return Shape(body.partition, body.nodes, body.gpus, body.walltime_s)
