"""SCENARIO.toml: sites with made-up or replayed queues, and the work to be done.

tokens = 1e11
round_tokens = 2e7
exchange_s = 8

[[sites]]
name = "lumi"
startup_s = 120
shapes = [{ nodes = 4, hours = 1, tokens_per_s = 312800 }, { nodes = 16, hours = 12, tokens_per_s = 1200000 }]
queue = { kind = "synthetic", median_h = [0.5, 9] }

[[sites]]
name = "theta"
shapes = [{ nodes = 128, hours = 6, tokens_per_s = 400000 }, { nodes = 512, hours = 6, tokens_per_s = 1500000 }]
queue = { kind = "trace", file = "theta.swf.gz", nodes = 4392, order = "fcfs" }
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from crosstrain.errors import UsageError
from crosstrain.placement.offer import Demand
from crosstrain.simulation.campaign.compare import Case
from crosstrain.simulation.queues.backfill import Order
from crosstrain.simulation.queues.observed import shapes_of
from crosstrain.simulation.queues.probes import DAY_S, HOUR_S, ProbeSpec, ProbeTable, cached_probes
from crosstrain.simulation.queues.published import cache_directory
from crosstrain.simulation.queues.swf import read_swf
from crosstrain.simulation.queues.synthetic import SyntheticQueue, synthetic_probes

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Spread = Annotated[float, Field(ge=0, le=5)]
"""Of a logarithm: 5 is a factor of 150 at one standard deviation; far more, and waits are no numbers any more."""
ROOM_S = 4 * DAY_S
"""From the last start of a campaign to the end of what is known of a queue."""


class Part(BaseModel):
    """Base of all parts: unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ShapePart(Part):
    """A shape that the site takes."""

    nodes: Annotated[int, Field(ge=1)]
    hours: Positive
    tokens_per_s: Positive


class SyntheticPart(Part):
    """A made-up queue (`queues.synthetic.SyntheticQueue`)."""

    kind: Literal["synthetic"]
    median_h: Annotated[tuple[Annotated[float, Field(gt=0, le=100_000)], ...], Field(min_length=1)]
    """Median wait of each shape, hours."""
    sigma: Spread = 1.0
    memory_h: NotNegative = 24.0
    own: Annotated[float, Field(ge=0, le=1)] = 0.3
    bias: Annotated[float, Field(gt=0, le=1000)] = 2.5
    noise: Spread = 0.5
    days: Annotated[float, Field(ge=14, le=1000)] = 60.0


class TracePart(Part):
    """A replayed log in the Standard Workload Format."""

    kind: Literal["trace"]
    file: str
    """Relative to the scenario."""
    nodes: Annotated[int, Field(ge=1)]
    """Of the machine."""
    order: Order = Order.FCFS


class SitePart(Part):
    """One site."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    shapes: Annotated[tuple[ShapePart, ...], Field(min_length=1)]
    queue: Annotated[SyntheticPart | TracePart, Field(discriminator="kind")]
    middle: int | None = None
    """Number of the shape that one would submit without a planner, from 0; by default the one in the middle."""
    depth: Annotated[int, Field(ge=0, le=20)] = 1
    """Jobs queued ahead."""
    startup_s: NotNegative = 0.0
    tail_s: NotNegative = 0.0

    @model_validator(mode="after")
    def _fits(self) -> SitePart:
        if isinstance(self.queue, SyntheticPart) and len(self.queue.median_h) != len(self.shapes):
            raise ValueError(
                f"expected one median_h for each of {len(self.shapes)} shapes, found {len(self.queue.median_h)}"
            )
        if self.middle is not None and not 0 <= self.middle < len(self.shapes):
            raise ValueError(f"middle is a number from 0 to {len(self.shapes) - 1}, found {self.middle}")
        return self


class Scenario(Part):
    """A whole campaign."""

    tokens: Positive
    round_tokens: Positive
    exchange_s: NotNegative = 0.0
    sites: Annotated[tuple[SitePart, ...], Field(min_length=1, max_length=6)]
    """At most six: hindsight tries every combination of their shapes."""

    @model_validator(mode="after")
    def _names_differ(self) -> Scenario:
        names = [site.name for site in self.sites]
        if len(set(names)) != len(names):
            raise ValueError(f"two sites have the same name: {names}")
        return self

    @property
    def demand(self) -> Demand:
        return Demand(self.tokens, self.round_tokens, self.exchange_s)


def load_scenario(path: Path) -> Scenario:
    """Reads a scenario.

    Raises:
        UsageError: unreadable, not TOML, or a key that is unknown or out of range.
    """
    try:
        return Scenario.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.", "give the path of a SCENARIO.toml") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}.", "see docs/guides/campaigns.md") from error
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(str(part) for part in fault['loc']) or 'scenario'}: {_said(fault)}" for fault in error.errors()
        )
        raise UsageError(f"{path}: {faults}.", "see docs/guides/campaigns.md") from None


def _said(fault: Mapping[str, object]) -> str:
    """What was expected, and what was found unless it is the whole part."""
    found = fault["input"]
    what = str(fault["msg"]).removeprefix("Value error, ")
    return what if isinstance(found, dict | SitePart) else f"{what}, found {found!r}"


def stage(site: SitePart, directory: Path, seed: int) -> Case:
    """A site with its queue; campaigns begin in the second half of what is known of it.

    Raises:
        UsageError: the log cannot be read, or is too short.
    """
    shapes = tuple((shape.nodes, round(shape.hours * HOUR_S)) for shape in site.shapes)
    table = _table(site, shapes, directory, seed)
    half, last_s = len(table.times_s) // 2, float(table.times_s[-1]) - ROOM_S
    rows = range(half, sum(time <= last_s for time in table.times_s.tolist()))
    if len(rows) == 0:
        raise UsageError(
            f"The queue of {site.name} is known for {len(table.times_s)} probes only.", "use a longer log, or more days"
        )
    speeds = {key: shape.tokens_per_s for key, shape in zip(shapes_of(table), site.shapes, strict=True)}
    middle = len(shapes) // 2 if site.middle is None else site.middle
    return Case(site.name, table, speeds, middle, rows, site.depth, site.startup_s, site.tail_s)


def _table(site: SitePart, shapes: tuple[tuple[int, int], ...], directory: Path, seed: int) -> ProbeTable:
    queue = site.queue
    if isinstance(queue, SyntheticPart):
        medians = tuple(hours * HOUR_S for hours in queue.median_h)
        made = SyntheticQueue(
            shapes, medians, queue.sigma, queue.memory_h, queue.own, queue.bias, queue.noise, queue.days
        )
        return synthetic_probes(made, f"{site.name} {seed}")
    try:
        trace = read_swf(directory / queue.file, queue.nodes)
        return cached_probes(trace, queue.order, ProbeSpec(shapes), cache_directory())
    except ValueError as error:
        raise UsageError(f"The log of {site.name}: {error}.", "check shapes, nodes and the log") from error
