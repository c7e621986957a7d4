"""Strategies compared on the same starts: what each would have chosen from what was known, and what came of it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import fmean, quantiles

from crosstrain.domain.ids import SiteName
from crosstrain.placement.choose import choose_shapes
from crosstrain.placement.forecast import Forecast
from crosstrain.placement.offer import Demand, Option, SiteOffer
from crosstrain.placement.predict import forecasts
from crosstrain.placement.shape import HOUR_S, Shape
from crosstrain.placement.usual import usual_wait
from crosstrain.simulation.campaign.realise import Choice, Place, Realised, realise
from crosstrain.simulation.campaign.truth import ReplayedWaits, shifted
from crosstrain.simulation.queues.observed import instant, observe, shapes_of
from crosstrain.simulation.queues.probes import ProbeTable

HORIZON_S = 60 * 24 * HOUR_S
Stated = tuple[Forecast, Forecast | None]


@dataclass(slots=True)
class Case:
    """A site with its table of probes.

    Attributes:
        speeds: tokens per second of each shape.
        middle: column of the shape that people without a planner would submit.
        depth: jobs queued ahead.
        rows: probes at which campaigns may begin.
        stated: whether others' jobs are visible -> row -> of each shape its forecast and its usual wait, as far as they were made.
    """

    name: str
    table: ProbeTable
    speeds: dict[Shape, float]
    middle: int
    rows: range
    depth: int = 1
    startup_s: float = 0.0
    tail_s: float = 0.0
    stated: dict[bool, dict[int, list[Stated]]] = field(default_factory=dict)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return shapes_of(self.table)

    def know(self, rows: Collection[int]) -> None:
        """Makes the forecasts at these probes that are not made yet, each from what was known at its time."""
        for visible in (False, True):
            made = self.stated.setdefault(visible, {})
            missing = set(rows) - made.keys()
            if not missing:
                continue
            for moment in observe(self.table, self.name, visible):
                if moment.row in missing:
                    found = forecasts(moment.site, self.shapes, moment.now)
                    made[moment.row] = [
                        (found[shape], usual_wait(moment.site, shape, moment.now)) for shape in self.shapes
                    ]

    def place(self, row: int) -> Place:
        """The site for a campaign that begins at a probe."""
        truth = shifted(ReplayedWaits.of(self.table), float(self.table.times_s[row]))
        return Place(truth, self.speeds, self.startup_s, self.tail_s)


Strategy = Callable[[Sequence[Case], Sequence[int], Demand], Realised]
"""(sites, row of each site at which the campaign begins, work) -> what came of it."""


def middle(cases: Sequence[Case], together: bool) -> Strategy:
    """Every site with its middle shape; together: nobody trains before all can."""
    chosen: Choice = [(case.shapes[case.middle], case.depth) for case in cases]

    def run(cases: Sequence[Case], rows: Sequence[int], demand: Demand) -> Realised:
        return play(cases, rows, chosen, demand, together)

    return run


def planner(visible: bool, largest: Sequence[float] = ()) -> Strategy:
    """What the planner chooses from the forecasts of that moment.

    Args:
        visible: others' jobs can be seen.
        largest: most nodes of a job at each site; by default all shapes are allowed.
    """

    def run(cases: Sequence[Case], rows: Sequence[int], demand: Demand) -> Realised:
        offers = []
        for case, row, most in zip(cases, rows, largest or [inf] * len(cases), strict=True):
            options = tuple(
                Option(shape, case.speeds[shape], stated, usual=usual)
                for shape, (stated, usual) in zip(case.shapes, case.stated[visible][row], strict=True)
                if shape.nodes <= most
            )
            offers.append(
                SiteOffer(
                    SiteName(case.name),
                    options,
                    max_depth=case.depth,
                    max_queued=case.depth + 1,
                    startup_s=case.startup_s,
                    tail_s=case.tail_s,
                )
            )
        shapes = choose_shapes(demand, offers, instant(float(cases[0].table.times_s[rows[0]])))
        return play(
            cases, rows, [(shapes[offer.name], case.depth) for offer, case in zip(offers, cases, strict=True)], demand
        )

    return run


def best_single(cases: Sequence[Case], rows: Sequence[int], demand: Demand) -> Realised:
    """The best site and shape alone, in hindsight."""
    alone = [
        [(shape, case.depth) if other == index else None for other in range(len(cases))]
        for index, case in enumerate(cases)
        for shape in case.shapes
    ]
    return min((play(cases, rows, choice, demand) for choice in alone), key=lambda each: each.finish_s)


def hindsight(largest: Sequence[float] = ()) -> Strategy:
    """The best members and shapes for the waits that happened."""

    def run(cases: Sequence[Case], rows: Sequence[int], demand: Demand) -> Realised:
        ways: list[Choice] = [
            [None, *((shape, case.depth) for shape in case.shapes if shape.nodes <= most)]
            for case, most in zip(cases, largest or [inf] * len(cases), strict=True)
        ]
        choices = (list(choice) for choice in itertools.product(*ways) if any(choice))
        return min((play(cases, rows, choice, demand) for choice in choices), key=lambda each: each.finish_s)

    return run


def play(
    cases: Sequence[Case], rows: Sequence[int], chosen: Choice, demand: Demand, together: bool = False
) -> Realised:
    """One campaign."""
    places = [case.place(row) for case, row in zip(cases, rows, strict=True)]
    return realise(places, chosen, demand, HORIZON_S, together)


def compare(
    cases: Sequence[Case],
    demand: Demand,
    strategies: dict[str, Strategy],
    starts: int,
    seed: int,
    progress: Callable[[int], None] = lambda _done: None,
) -> list[dict[str, Realised]]:
    """All strategies on the same random starts, one dictionary per start. Sites begin at times of their own logs."""
    rng, found = random.Random(f"starts {seed}"), []
    drawn = [[rng.choice(case.rows) for case in cases] for _ in range(starts)]
    for index, case in enumerate(cases):
        case.know({rows[index] for rows in drawn})
    for number, rows in enumerate(drawn):
        found.append({name: strategy(cases, rows, demand) for name, strategy in strategies.items()})
        progress(number + 1)
    return found


@dataclass(frozen=True, slots=True)
class Summary:
    """One strategy over all starts.

    Attributes:
        hours: mean time to the target.
        saving: mean of 1 - T / T(the first strategy), with its 10, 50 and 90 % quantiles.
        regret: mean time over mean time of the best in hindsight, minus one.
        node_hours, wasted: means.
        unfinished: share of starts that did not reach the target within the horizon.
    """

    hours: float
    saving: float
    saving_p10: float
    saving_p50: float
    saving_p90: float
    regret: float
    node_hours: float
    wasted: float
    unfinished: float


def summarise(found: Sequence[dict[str, Realised]], name: str, against: str, best: str) -> Summary:
    """Means over the starts; a start that is not done within the horizon counts with the horizon."""
    times = {key: [min(row[key].finish_s, HORIZON_S) for row in found] for key in (name, against, best)}
    savings = [1 - mine / theirs for mine, theirs in zip(times[name], times[against], strict=True)]
    tenths = quantiles(savings, n=10, method="inclusive") if len(savings) > 1 else savings * 9
    return Summary(
        hours=fmean(times[name]) / HOUR_S,
        saving=fmean(savings),
        saving_p10=tenths[0],
        saving_p50=tenths[4],
        saving_p90=tenths[8],
        regret=sum(times[name]) / sum(times[best]) - 1,
        node_hours=fmean(row[name].node_hours for row in found),
        wasted=fmean(row[name].wasted for row in found),
        unfinished=fmean(row[name].finish_s == inf for row in found),
    )
