"""The record of past error: what forecasts said of own jobs, against what happened. It is shown beside every forecast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from crosstrain.placement.forecast import BANDS, Forecast

PINBALL_LEVELS = (0.1, 0.5, 0.9)


@dataclass(frozen=True, slots=True)
class Scored:
    """A forecast and its outcome.

    Attributes:
        stated: the forecast at the submission.
        wait_s: the true wait.
        test_only_s: the scheduler's own estimate at that time, if there was one.
        discounted_s: that times the site's discount, if it was known.
    """

    stated: Forecast
    wait_s: float
    test_only_s: float | None = None
    discounted_s: float | None = None


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """How good forecasts were. Durations are seconds; what cannot be said is None.

    Attributes:
        outcomes: forecasts whose outcome is known.
        coverage: share of waits inside the bands of 50, 80 and 90 %.
        widths_s: mean width of these bands.
        pinball_s: mean quantile loss at 0.1, 0.5 and 0.9.
        mean_absolute_s: MAE of the point.
        median_absolute_s: median of the absolute errors.
        bias_s: mean of forecast minus truth; positive: jobs start sooner than said.
        over_raw: MAE over that of the scheduler's own estimate, on the jobs that had one.
        over_discounted: MAE over that of the discounted estimate, likewise.
        share_now: share of the scheduler's estimates that said "now".
    """

    outcomes: int
    coverage: tuple[float, ...] | None = None
    widths_s: tuple[float, ...] | None = None
    pinball_s: float | None = None
    mean_absolute_s: float | None = None
    median_absolute_s: float | None = None
    bias_s: float | None = None
    over_raw: float | None = None
    over_discounted: float | None = None
    share_now: float | None = None


def error_record(scored: Sequence[Scored]) -> ErrorRecord:
    """The record of these forecasts."""
    if not scored:
        return ErrorRecord(0)
    bands = [[item.stated.band(level) for item in scored] for level in BANDS]
    errors = [item.stated.point_s - item.wait_s for item in scored]
    raw = [item.test_only_s for item in scored if item.test_only_s is not None]
    return ErrorRecord(
        outcomes=len(scored),
        coverage=tuple(
            fmean(low <= item.wait_s <= high for (low, high), item in zip(band, scored, strict=True)) for band in bands
        ),
        widths_s=tuple(fmean(high - low for low, high in band) for band in bands),
        pinball_s=fmean(pinball(item.stated.quantile(p), item.wait_s, p) for item in scored for p in PINBALL_LEVELS),
        mean_absolute_s=fmean(map(abs, errors)),
        median_absolute_s=median(map(abs, errors)),
        bias_s=fmean(errors),
        over_raw=_ratio([(item, item.test_only_s) for item in scored]),
        over_discounted=_ratio([(item, item.discounted_s) for item in scored]),
        share_now=fmean(value <= 0 for value in raw) if raw else None,
    )


def pinball(stated_s: float, wait_s: float, probability: float) -> float:
    """Quantile loss (Koenker and Bassett, 1978): least on average where `stated_s` is the true quantile."""
    return (wait_s - stated_s) * (probability - (wait_s < stated_s))


def _ratio(items: Sequence[tuple[Scored, float | None]]) -> float | None:
    told = [(item, other) for item, other in items if other is not None]
    theirs = sum(abs(other - item.wait_s) for item, other in told)
    return sum(abs(item.stated.point_s - item.wait_s) for item, _ in told) / theirs if theirs > 0 else None
