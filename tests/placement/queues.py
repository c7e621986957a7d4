"""Sites and forecasts for tests of the planner."""

from __future__ import annotations

from crosstrain.domain.ids import Instant, SiteName
from crosstrain.placement.forecast import LEVELS, Basis, Forecast
from crosstrain.placement.offer import Demand, Job, Option, SiteOffer
from crosstrain.placement.shape import Shape

NOW = Instant(1_800_000_000_000)
HOUR = 3600.0


def certain(wait_s: float) -> Forecast:
    """A wait that is known."""
    return Forecast(NOW, Basis.TEST_ONLY, wait_s, (0.5,), (wait_s,), 100, "known")


def spread(median_s: float, width: float = 4.0) -> Forecast:
    """A wait between median / width and median x width."""
    factors = [width ** (2 * level - 1) for level in LEVELS]
    return Forecast(NOW, Basis.TEST_ONLY, median_s, LEVELS, tuple(median_s * factor for factor in factors), 30, "")


def option(wait: Forecast, nodes: int = 4, hours: float = 8.0, speed: float = 100.0) -> Option:
    """A shape that trains `speed` tokens per second and node."""
    return Option(Shape("gpu", nodes, 4, round(hours * HOUR)), speed * nodes, wait, windows_per_pass=8)


def site(name: str, *options: Option, jobs: tuple[Job, ...] = (), **more: object) -> SiteOffer:
    """A site whose jobs train from their first to their last second, unless told otherwise."""
    settings = {"startup_s": 0.0, "tail_s": 0.0, **more}
    return SiteOffer(SiteName(name), options, jobs, **settings)  # type: ignore[arg-type]


def demand(tokens: float, exchange_s: float = 0.0, windows_per_step: int = 0) -> Demand:
    """Rounds of 10,000 tokens."""
    return Demand(tokens, 10_000.0, exchange_s, windows_per_step)
