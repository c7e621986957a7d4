"""What a collector would know of a replayed site: the production state of waits, fed with probes and with the waits of own jobs.

One job of each shape is submitted a day, at another time every day; its wait becomes known when it starts and not before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from crosstrain.domain.ids import Instant, SiteName
from crosstrain.placement.observations import Estimates
from crosstrain.placement.predict import forecast
from crosstrain.placement.shape import Shape
from crosstrain.placement.waits import SiteWaits, discounted, probed, started, submitted
from crosstrain.simulation.queues.probes import DAY_S, ProbeTable

PARTITION = "batch"


@dataclass(frozen=True, slots=True)
class Moment:
    """A probe time.

    Attributes:
        row: of the table.
        now: the same as an instant.
        site: all that is known then, this probe included.
    """

    row: int
    now: Instant
    site: SiteWaits


def shapes_of(table: ProbeTable) -> tuple[Shape, ...]:
    """The table's columns as shapes."""
    return tuple(Shape(PARTITION, nodes, 0, limit_s) for nodes, limit_s in table.spec.shapes)


def instant(seconds: float) -> Instant:
    """Seconds since the log's first submission as an instant."""
    return Instant(round(1000 * seconds))


def observe(table: ProbeTable, name: str, visible: bool) -> Iterator[Moment]:
    """The state at each probe, in the order of time.

    Args:
        visible: whether others' jobs can be seen, so that there is an own plan of the queue beside the scheduler's estimate.
    """
    site, shapes = SiteWaits(SiteName(name)), shapes_of(table)
    starting: list[tuple[Instant, str]] = []
    per_day = max(1, DAY_S // table.spec.every_s)
    for row, seconds in enumerate(table.times_s.tolist()):
        now = instant(seconds)
        while starting and starting[0][0] <= now:
            at, job = heappop(starting)
            site = started(site, job, at)
        site = discounted(site, float(table.discount[row]))
        for column, shape in enumerate(shapes):
            site = probed(site, shape, _estimates(table, row, column, visible))
        yield Moment(row, now, site)
        day, place = divmod(row, per_day)
        for column, shape in enumerate(shapes):
            if place == (5 * day + 3 * column) % per_day:
                job = f"{row}-{column}"
                site = submitted(site, job, shape, now, forecast(site, shape, now))
                heappush(starting, (instant(seconds + float(table.wait_s[row, column])), job))


def _estimates(table: ProbeTable, row: int, column: int, visible: bool) -> Estimates:
    return Estimates(
        instant(float(table.times_s[row])),
        float(table.test_only_s[row, column]),
        float(table.plan_s[row, column]) if visible else None,
    )
