"""Forecasts of waits on replayed job logs: `python benchmarks/waits.py [--traces DIR] [--json]`.

Two logs, each replayed first come first served and with a WFP-like order. Every two hours each shape is probed, and the true wait is
that of a job submitted then. One job of each shape a day is really submitted; only its wait is ever known, and only from its start on.
The second half of the probes is scored. The logs are not part of the project; without them the benchmark says so and ends with 2.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from crosstrain.errors import CrosstrainError
from crosstrain.placement import predict
from crosstrain.placement.comparison import discounted_s, ewma_s, past_waits, raw_s
from crosstrain.placement.error_record import ErrorRecord, Scored, error_record
from crosstrain.placement.shape import Shape
from crosstrain.simulation.queues.backfill import Order
from crosstrain.simulation.queues.observed import Moment, observe, shapes_of
from crosstrain.simulation.queues.probes import HOUR_S, ProbeTable, cached_probes
from crosstrain.simulation.queues.published import LOGS, SCORED, cache_directory, traces_directory
from crosstrain.simulation.queues.swf import Trace, read_swf

BARS = {"without_squeue": (0.30, 0.55), "with_squeue": (0.24, 0.45)}
"""Largest MAE over that of the raw estimate, and over that of the discounted one."""
COVERAGE80 = (0.75, 0.85)


@dataclass(slots=True)
class Errors:
    """Absolute errors of the comparison predictors, in seconds, and the forecasts that are quantiles."""

    raw: list[float] = field(default_factory=list)
    discounted: list[float] = field(default_factory=list)
    ewma: list[float] = field(default_factory=list)
    history: list[Scored] = field(default_factory=list)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, help="directory of the job logs")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    chosen = parser.parse_args()
    try:
        directory = traces_directory(chosen.traces)
        report = dict(replays(directory))
    except CrosstrainError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    print(json.dumps(report, indent=2) if chosen.json else table(report))
    return 0


def replays(directory: Path) -> Iterator[tuple[str, dict[str, object]]]:
    """Name and figures of every replay."""
    for name in SCORED:
        log = LOGS[name]
        trace = read_swf(directory / log.file, log.nodes)
        for order in Order:
            probes = cached_probes(trace, order, log.probes, cache_directory())
            yield f"{name}-{order}", figures(trace, probes)


def figures(trace: Trace, probes: ProbeTable) -> dict[str, object]:
    others = Errors()
    without = error_record(list(forecasts(probes, False, others)))
    with_squeue = error_record(list(forecasts(probes, True)))
    past = error_record(others.history)
    assert past.coverage is not None
    return {
        "jobs": len(trace.jobs),
        "load": round(trace.load, 3),
        "probes_scored": len(others.raw),
        "mean_wait_h": hours(float(probes.wait_s[len(probes.times_s) // 2 :].mean())),
        "mae_h": {
            "raw": hours(fmean(others.raw)),
            "discounted": hours(fmean(others.discounted)),
            "ewma": hours(fmean(others.ewma)),
            "history": hours(past.mean_absolute_s),
        },
        "history_coverage80": round(past.coverage[1], 3),
        "without_squeue": summary(without),
        "with_squeue": summary(with_squeue),
    }


def forecasts(probes: ProbeTable, visible: bool, others: Errors | None = None) -> Iterator[Scored]:
    """Every forecast of the second half with its truth; fills in the errors of the other predictors."""
    for moment in observe(probes, "replayed", visible):
        if moment.row < len(probes.times_s) // 2:
            continue
        made = predict.forecasts(moment.site, shapes_of(probes), moment.now)
        for column, (shape, stated) in enumerate(made.items()):
            wait_s = float(probes.wait_s[moment.row, column])
            if others is not None:
                compare(moment, shape, wait_s, others)
            yield Scored(stated, wait_s, raw_s(moment.site, shape), discounted_s(moment.site, shape))


def compare(moment: Moment, shape: Shape, wait_s: float, errors: Errors) -> None:
    past = past_waits(moment.site, shape, moment.now)
    told = raw_s(moment.site, shape), discounted_s(moment.site, shape), ewma_s(moment.site, shape, moment.now)
    for kept, value in zip((errors.raw, errors.discounted, errors.ewma), told, strict=True):
        assert value is not None, "after half of a log there are outcomes of every shape"
        kept.append(abs(value - wait_s))
    assert past is not None
    errors.history.append(Scored(past, wait_s))


def summary(record: ErrorRecord) -> dict[str, object]:
    assert record.coverage and record.widths_s and record.over_raw is not None and record.over_discounted is not None
    return {
        "mae_over_raw": round(record.over_raw, 3),
        "mae_over_discounted": round(record.over_discounted, 3),
        "coverage80": round(record.coverage[1], 3),
        "coverage50": round(record.coverage[0], 3),
        "coverage90": round(record.coverage[2], 3),
        "mae_h": hours(record.mean_absolute_s),
        "median_absolute_h": hours(record.median_absolute_s),
        "bias_h": hours(record.bias_s),
        "pinball_h": hours(record.pinball_s),
        "width80_h": hours(record.widths_s[1]),
        "share_now": round(record.share_now or 0.0, 3),
    }


def hours(seconds: float | None) -> float:
    assert seconds is not None
    return round(seconds / HOUR_S, 2)


def table(report: dict[str, dict[str, object]]) -> str:
    lines = [f"{'replay':12}{'predictor':24}{'MAE h':>8}{'/ raw':>8}{'/ disc':>8}{'80 %':>7}  bars"]
    for name, found in report.items():
        others: dict[str, float] = found["mae_h"]  # type: ignore[assignment]
        for predictor, mae in others.items():
            ratios = f"{mae / others['raw']:8.2f}{mae / others['discounted']:8.2f}"
            covered = f"{found['history_coverage80']:7.2f}" if predictor == "history" else ""
            lines.append(f"{name:12}{predictor:24}{mae:8.2f}{ratios}{covered}")
        for key, bars in BARS.items():
            lines.append(f"{name:12}{_own_line(key, found[key], bars)}")  # type: ignore[arg-type]
    return "\n".join(lines)


def _own_line(key: str, own: dict[str, float], bars: tuple[float, float]) -> str:
    raw, discounted, covered = own["mae_over_raw"], own["mae_over_discounted"], own["coverage80"]
    met = raw <= bars[0], discounted <= bars[1], COVERAGE80[0] <= covered <= COVERAGE80[1]
    verdict = " ".join("met" if one else "MISSED" for one in met)
    return f"{'forecast ' + key.replace('_', ' '):24}{own['mae_h']:8.2f}{raw:8.3f}{discounted:8.3f}{covered:7.3f}  {verdict}"


if __name__ == "__main__":
    sys.exit(main())
