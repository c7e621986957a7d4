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
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from crosstrain.domain.ids import Instant, SiteName
from crosstrain.placement.choose import make_plan
from crosstrain.placement.forecast import LEVELS, Basis, Forecast
from crosstrain.placement.offer import Demand, Option, SiteOffer
from crosstrain.placement.shape import HOUR_S, Shape
from crosstrain.simulation.campaign import compare
from crosstrain.simulation.campaign.compare import Case, Strategy
from crosstrain.simulation.queues.backfill import Order
from crosstrain.simulation.queues.observed import shapes_of
from crosstrain.simulation.queues.probes import cached_probes
from crosstrain.simulation.queues.published import LOGS, cache_directory, traces_directory
from crosstrain.simulation.queues.swf import read_swf

WORK_H = (12.0, 26.5, 72.0)
MIDDLE = 2
"""Column of the middle shape: more nodes than the small ones, fewer than the largest."""
ROOM_S = 4 * 24 * HOUR_S
"""From the last start to the end of a log."""


def load(name: str, order: Order, traces: Path) -> Case:
    """A site with its table of probes."""
    log = LOGS[name]
    table = cached_probes(read_swf(traces / log.file, log.nodes), order, log.probes, cache_directory())
    shapes = shapes_of(table)
    last = max(row for row, time in enumerate(table.times_s) if time <= table.times_s[-1] - ROOM_S)
    speeds = {shape: shape.nodes / shapes[MIDDLE].nodes for shape in shapes}
    return Case(name, table, speeds, MIDDLE, range(len(table.times_s) // 2, last))


def cell(cases: list[Case], work_h: float, starts: int, seed: int) -> dict[str, Any]:
    """All strategies of one cell."""
    nodes = [case.shapes[MIDDLE].nodes for case in cases]
    strategies: dict[str, Strategy] = {
        "wait_for_all": compare.middle(cases, together=True),
        "submit_everywhere": compare.middle(cases, together=False),
        "best_single_site": compare.best_single,
        "planner": compare.planner(visible=False),
        "planner_with_squeue": compare.planner(visible=True),
        "hindsight": compare.hindsight(),
        "equal_nodes_planner": compare.planner(False, nodes),
        "equal_nodes_hindsight": compare.hindsight(nodes),
    }
    found = compare.compare(cases, Demand(2 * work_h * HOUR_S, 1e9, 0.0), strategies, starts, seed)
    best = {name: "equal_nodes_hindsight" if name.startswith("equal") else "hindsight" for name in strategies}
    by = {name: compare.summarise(found, name, "wait_for_all", best[name]) for name in strategies}
    return {
        "saving_vs_wait_all": by["planner"].saving,
        "saving_submit_everywhere": by["submit_everywhere"].saving,
        "regret_to_hindsight": by["planner"].regret,
        "regret_to_hindsight_with_squeue": by["planner_with_squeue"].regret,
        "equal_nodes": {
            "saving_vs_wait_all": by["equal_nodes_planner"].saving,
            "regret_to_hindsight": by["equal_nodes_planner"].regret,
        },
        "starts": starts,
        "strategies": {name: asdict(summary) for name, summary in by.items()},
    }


def planning() -> dict[str, Any]:
    """Seconds for a plan of ten sites with twenty shapes each over sixty days, and whether planning again changes it."""
    sites = [SiteOffer(SiteName(f"site{number}"), tuple(_options(number))) for number in range(10)]
    work = Demand(1e11, 2e7, 8.0, 96)
    wall, processor = [], []
    first = make_plan("run", work, sites, Instant(0))
    for _ in range(5):
        begun = time.perf_counter(), time.process_time()
        again = make_plan("run", work, sites, Instant(0), first)
        wall.append(time.perf_counter() - begun[0])
        processor.append(time.process_time() - begun[1])
    return {
        "sites": 10,
        "shapes": 20,
        "wall_s": min(wall),
        "processor_s": min(processor),
        "finish_days": first.finish.quantile(0.5) / 86400,
        "replan_changes_nothing": again == first,
    }


def _options(number: int) -> Iterator[Option]:
    for nodes, hours in itertools.product((1, 2, 4, 8, 16), (1, 4, 8, 24)):
        shape = Shape("gpu", nodes, 4, hours * 3600)
        median_s = 600.0 * nodes**0.8 * (3600 * hours) ** 0.25 * (1 + number)
        waits = tuple(median_s * factor for factor in (0.02, 0.05, 0.1, 0.4, 1, 1.8, 3, 4, 6))
        yield Option(shape, 2000.0 * nodes, Forecast(Instant(0), Basis.TEST_ONLY, median_s, LEVELS, waits), 8)


def show(cells: dict[str, dict[str, Any]], planned: dict[str, Any]) -> None:
    print(
        f"{'cell':12}{'saving: everywhere':>20}{'planner':>9}{'+squeue':>9}{'hindsight':>11}{'regret':>8}{'+squeue':>9}"
    )
    for name, found in cells.items():
        by = found["strategies"]
        print(
            f"{name:12}{100 * found['saving_submit_everywhere']:18.1f} %{100 * found['saving_vs_wait_all']:7.1f} %"
            f"{100 * by['planner_with_squeue']['saving']:7.1f} %{100 * by['hindsight']['saving']:9.1f} %"
            f"{100 * found['regret_to_hindsight']:6.1f} %{100 * found['regret_to_hindsight_with_squeue']:7.1f} %"
        )
    print("\nno shape larger than the middle one:")
    for name, found in cells.items():
        equal = found["equal_nodes"]
        saving, regret = 100 * equal["saving_vs_wait_all"], 100 * equal["regret_to_hindsight"]
        print(f"{name:12}saving {saving:5.1f} %, regret {regret:4.1f} %")
    print("\nnode-hours (of them without training), mean over starts:")
    for name, found in cells.items():
        parts = (
            f"{key} {each['node_hours']:,.0f} ({each['wasted']:,.0f})" for key, each in found["strategies"].items()
        )
        print(f"{name:12}" + ", ".join(parts))
    print(
        f"\na plan of {planned['sites']} sites x {planned['shapes']} shapes x 60 days: {planned['wall_s']:.2f} s "
        f"({planned['processor_s']:.2f} s of processor time); planning again changes "
        f"{'nothing' if planned['replan_changes_nothing'] else 'something'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--starts", type=int, default=1000, help="campaigns per cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--traces", type=Path, default=None, help="directory of the logs")
    chosen = parser.parse_args()
    traces = traces_directory(chosen.traces)
    cells = {}
    for order in Order:
        cases = [load(name, order, traces) for name in ("theta", "mira")]
        for work_h in WORK_H:
            print(f"{order} {work_h:g} h ...", file=sys.stderr)
            cells[f"{order}-{work_h:g}h"] = cell(cases, work_h, chosen.starts, chosen.seed)
    planned = planning()
    if chosen.json:
        print(json.dumps({**cells, "planning": planned}))
    else:
        show(cells, planned)


if __name__ == "__main__":
    main()
