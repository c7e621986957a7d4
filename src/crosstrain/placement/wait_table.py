"""What `crosstrain waits` shows: of each shape its forecast, what is behind it, and how wrong forecasts of it were."""

from __future__ import annotations

from dataclasses import dataclass

from crosstrain.domain.ids import Instant, SiteName
from crosstrain.placement.error_record import ErrorRecord, error_record
from crosstrain.placement.forecast import BANDS, Forecast
from crosstrain.placement.predict import forecasts
from crosstrain.placement.shape import Shape
from crosstrain.placement.waits import SiteWaits


@dataclass(frozen=True, slots=True)
class WaitRow:
    """One shape at one site.

    Attributes:
        forecast: of a job submitted now.
        bands_s: lower and upper end of the bands of `BANDS`, seconds.
        probe_age_s: seconds since the last usable probe; None without one.
        waiting: own jobs of the shape that wait.
        record: of the forecasts whose outcome is known.
    """

    site: SiteName
    shape: Shape
    forecast: Forecast
    bands_s: tuple[tuple[float, float], ...]
    probe_age_s: float | None
    waiting: int
    record: ErrorRecord


def wait_rows(site: SiteWaits, now: Instant) -> tuple[WaitRow, ...]:
    """A row for each shape that was ever probed or submitted, in the order of the shapes."""
    rows, all_made = [], forecasts(site, [held.shape for held in site.shapes], now)
    for held in site.shapes:
        made = all_made[held.shape]
        age_s = None if held.latest is None else max(0.0, (now - held.latest.at) / 1000)
        bands = tuple(made.band(level) for level in BANDS)
        rows.append(WaitRow(site.site, held.shape, made, bands, age_s, len(held.open), error_record(held.scored)))
    return tuple(rows)
