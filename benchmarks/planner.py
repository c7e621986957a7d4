"""The planner against "submit everywhere" and against hindsight, on replays of two real logs.

    python benchmarks/planner.py [--json] [--starts N] [--traces DIR]

Two sites, Theta and Mira, each replayed under two scheduling orders; campaigns begin at random times of the second half of each
log. Work is W hours of both sites at the speed of their middle shapes; speed grows with the number of nodes. Every strategy
chooses at its beginning, from what was known then, and is judged by the waits that really happened, requeue waits included.
All have one job queued ahead.

For each cell (order and W): saving = 1 - T / T(wait for all with the middle shape), mean over starts; regret = T / T(best
choice in hindsight) - 1. `equal_nodes`: the same with no shape larger than the middle one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

from crosstrain.domain.ids import SiteName
from crosstrain.placement.choose import choose_shapes
from crosstrain.placement.forecast import Forecast
from crosstrain.placement.offer import Demand, Option, SiteOffer
from crosstrain.placement.predict import forecast
from crosstrain.placement.shape import HOUR_S, Shape
from crosstrain.simulation.campaign.realise import Place, Realised, realise
from crosstrain.simulation.campaign.truth import ReplayedWaits
from crosstrain.simulation.queues.backfill import Order
from crosstrain.simulation.queues.observed import instant, observe, shapes_of
from crosstrain.simulation.queues.probes import ProbeTable, cached_probes
from crosstrain.simulation.queues.published import LOGS, cache_directory, traces_directory
from crosstrain.simulation.queues.swf import read_swf

WORK_H = (12.0, 26.5, 72.0)
MIDDLE = 2
"""Column of the middle shape: more nodes than the small ones, fewer than the largest."""
HORIZON_S = 60 * 24 * HOUR_S
ROOM_S = 4 * 24 * HOUR_S
"""From the last start to the end of a log."""


@dataclass(frozen=True, slots=True)
class Site:
    """One replayed site.

    Attributes:
        forecasts: visible queue or not -> row of a probe -> one forecast per shape.
        rows: of the second half.
    """

    name: str
    table: ProbeTable
    shapes: tuple[Shape, ...]
    place: Place
    forecasts: dict[bool, dict[int, list[Forecast]]]
    rows: range


def load(name: str, order: Order, traces: Path) -> Site:
    log = LOGS[name]
    table = cached_probes(read_swf(traces / log.file, log.nodes), order, log.probes, cache_directory())
    shapes = shapes_of(table)
    speeds = {shape: shape.nodes / shapes[MIDDLE].nodes for shape in shapes}
    last = max(row for row, time in enumerate(table.times_s) if time <= table.times_s[-1] - ROOM_S)
    rows = range(len(table.times_s) // 2, last)
    seen: dict[bool, dict[int, list[Forecast]]] = {}
    for visible in (False, True):
        seen[visible] = {
            moment.row: [forecast(moment.site, shape, moment.now) for shape in shapes]
            for moment in observe(table, name, visible)
            if moment.row in rows
        }
    return Site(name, table, shapes, Place(ReplayedWaits.of(table), speeds), seen, rows)


Choice = list[tuple[Shape, int] | None]


def planned(
    sites: Sequence[Site], rows: Sequence[int], demand: Demand, visible: bool, largest: Sequence[int]
) -> Choice:
    """What the planner submits."""
    offers = []
    for site, row, most in zip(sites, rows, largest, strict=True):
        options = tuple(
            Option(shape, site.place.tokens_per_s[shape], stated)
            for shape, stated in zip(site.shapes, site.forecasts[visible][row], strict=True)
            if shape.nodes <= most
        )
        offers.append(SiteOffer(SiteName(site.name), options, max_depth=1, startup_s=0.0, tail_s=0.0))
    shapes = choose_shapes(demand, offers, instant(float(sites[0].table.times_s[rows[0]])))
    return [(shapes[offer.name], 1) for offer in offers]


def hindsight(sites: Sequence[Site], demand: Demand, begins: Sequence[float], largest: Sequence[int]) -> Realised:
    """The best choice of members and shapes, for the waits that happened."""
    ways = [
        [None, *((s, 1) for s in site.shapes if s.nodes <= most)] for site, most in zip(sites, largest, strict=True)
    ]
    found = [play(sites, list(choice), demand, begins) for choice in itertools.product(*ways) if any(choice)]
    return min(found, key=lambda each: each.finish_s)


class _Shifted:
    """A truth whose clock is another site's."""

    def __init__(self, truth: ReplayedWaits, offset_s: float) -> None:
        self._truth, self._offset_s = truth, offset_s

    def wait_s(self, shape: Shape, submitted_s: float) -> float:
        return self._truth.wait_s(shape, submitted_s + self._offset_s)


def play(
    sites: Sequence[Site], choice: Choice, demand: Demand, begins: Sequence[float], together: bool = False
) -> Realised:
    """One campaign that begins at another time of each log."""
    places = [
        Place(_Shifted(site.place.truth, begin), site.place.tokens_per_s)  # type: ignore[arg-type]
        for site, begin in zip(sites, begins, strict=True)
    ]
    return realise(places, choice, demand, 0.0, HORIZON_S, together)


def cell(sites: Sequence[Site], work_h: float, starts: int, seed: int) -> dict[str, Any]:
    """All strategies of one cell."""
    rng = random.Random(seed)
    demand = Demand(2 * work_h * HOUR_S, 1e9, 0.0)
    middle: Choice = [(site.shapes[MIDDLE], 1) for site in sites]
    middling = [site.shapes[MIDDLE].nodes for site in sites]
    everything = [max(shape.nodes for shape in site.shapes) for site in sites]
    rows: list[dict[str, Realised]] = []
    for _ in range(starts):
        at = [rng.choice(site.rows) for site in sites]
        begins = [float(site.table.times_s[row]) for site, row in zip(sites, at, strict=True)]
        singles = [
            play(sites, [(shape, 1) if index == number else None for number in range(len(sites))], demand, begins)
            for index, site in enumerate(sites)
            for shape in site.shapes
        ]
        rows.append(
            {
                "wait_for_all": play(sites, middle, demand, begins, together=True),
                "submit_everywhere": play(sites, middle, demand, begins),
                "best_single_site": min(singles, key=lambda each: each.finish_s),
                "planner": play(sites, planned(sites, at, demand, False, everything), demand, begins),
                "planner_with_squeue": play(sites, planned(sites, at, demand, True, everything), demand, begins),
                "hindsight": hindsight(sites, demand, begins, everything),
                "equal_nodes_planner": play(sites, planned(sites, at, demand, False, middling), demand, begins),
                "equal_nodes_hindsight": hindsight(sites, demand, begins, middling),
            }
        )
    return summary(rows)


def summary(rows: Sequence[dict[str, Realised]]) -> dict[str, Any]:
    """Means over starts, with p10, p50, p90 of the savings."""
    found: dict[str, Any] = {"starts": len(rows), "strategies": {}}
    for name in rows[0]:
        savings = [1 - row[name].finish_s / row["wait_for_all"].finish_s for row in rows]
        tenths = quantiles(savings, n=10)
        found["strategies"][name] = {
            "hours": fmean(row[name].finish_s for row in rows) / HOUR_S,
            "saving": fmean(savings),
            "saving_p10": tenths[0],
            "saving_p50": tenths[4],
            "saving_p90": tenths[8],
            "node_hours": fmean(row[name].node_hours for row in rows),
            "node_hours_wasted": fmean(row[name].wasted for row in rows),
        }
    regret = regret_of(rows, "planner", "hindsight")
    found |= {
        "saving_vs_wait_all": found["strategies"]["planner"]["saving"],
        "saving_submit_everywhere": found["strategies"]["submit_everywhere"]["saving"],
        "regret_to_hindsight": regret,
        "regret_to_hindsight_with_squeue": regret_of(rows, "planner_with_squeue", "hindsight"),
        "equal_nodes": {
            "saving_vs_wait_all": found["strategies"]["equal_nodes_planner"]["saving"],
            "regret_to_hindsight": regret_of(rows, "equal_nodes_planner", "equal_nodes_hindsight"),
        },
    }
    return found


def regret_of(rows: Sequence[dict[str, Realised]], name: str, best: str) -> float:
    """Mean time over mean time of the best, minus one."""
    return sum(row[name].finish_s for row in rows) / sum(row[best].finish_s for row in rows) - 1


def show(cells: dict[str, dict[str, Any]]) -> None:
    print(
        f"{'cell':14}{'saving: everywhere':>20}{'planner':>9}{'+squeue':>9}{'hindsight':>11}{'regret':>8}{'+squeue':>9}"
    )
    for name, found in cells.items():
        by = found["strategies"]
        print(
            f"{name:14}{100 * found['saving_submit_everywhere']:18.1f} %{100 * found['saving_vs_wait_all']:7.1f} %"
            f"{100 * by['planner_with_squeue']['saving']:7.1f} %{100 * by['hindsight']['saving']:9.1f} %"
            f"{100 * found['regret_to_hindsight']:6.1f} %{100 * found['regret_to_hindsight_with_squeue']:7.1f} %"
        )
    print("\nno shape larger than the middle one:")
    for name, found in cells.items():
        equal = found["equal_nodes"]
        saving, regret = 100 * equal["saving_vs_wait_all"], 100 * equal["regret_to_hindsight"]
        print(f"{name:14}saving {saving:5.1f} %, regret {regret:4.1f} %")
    print("\nnode-hours (wasted), mean over starts:")
    for name, found in cells.items():
        parts = (
            f"{key} {each['node_hours']:,.0f} ({each['node_hours_wasted']:,.0f})"
            for key, each in found["strategies"].items()
        )
        print(f"{name:14}" + ", ".join(parts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--starts", type=int, default=1000, help="campaigns per cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--traces", type=Path, default=None, help="directory of the logs")
    chosen = parser.parse_args()
    traces = traces_directory(chosen.traces)
    cells = {}
    for order in Order:
        sites = [load(name, order, traces) for name in ("theta", "mira")]
        for work_h in WORK_H:
            print(f"{order} {work_h:g} h ...", file=sys.stderr)
            cells[f"{order}-{work_h:g}h"] = cell(sites, work_h, chosen.starts, chosen.seed)
    if chosen.json:
        print(json.dumps(cells))
    else:
        show(cells)


if __name__ == "__main__":
    main()
