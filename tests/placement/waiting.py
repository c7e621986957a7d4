"""A site whose waits are known, for tests of the wait model."""

from __future__ import annotations

import random
from collections.abc import Callable

from crosstrain.domain.ids import Instant, SiteName
from crosstrain.placement.error_record import Scored
from crosstrain.placement.observations import Estimates
from crosstrain.placement.predict import forecast
from crosstrain.placement.shape import Shape
from crosstrain.placement.waits import SiteWaits, discounted, probed, started, submitted

START = 1_700_000_000_000
HOUR_S = 3600.0
DAY_S = 86400.0
SMALL = Shape("batch", 1, 4, 3600)
LARGE = Shape("batch", 8, 4, 12 * 3600)
EMPTY = SiteWaits(SiteName("north"))


def at(seconds: float) -> Instant:
    return Instant(START + round(1000 * seconds))


def estimated(seconds: float, estimate_s: float | None, plan_s: float | None = None) -> Estimates:
    return Estimates(at(seconds), estimate_s, plan_s)


def submit_and_start(
    site: SiteWaits, shape: Shape, seconds: float, estimate_s: float | None, wait_s: float, plan_s: float | None = None
) -> SiteWaits:
    """A probe, a job submitted with it, and its start."""
    job = f"{shape} at {seconds}"
    site = probed(site, shape, estimated(seconds, estimate_s, plan_s))
    site = submitted(site, job, shape, at(seconds), forecast(site, shape, at(seconds)))
    return started(site, job, at(seconds + wait_s))


def play(
    days: int, truth: Callable[[random.Random, int, float], float], seed: int = 0, shape: Shape = SMALL
) -> tuple[SiteWaits, list[Scored]]:
    """A job a day, estimates drawn between 1 and 60 h, waits by `truth(rng, day, estimate)`; and what was forecast of each."""
    rng, site, scored = random.Random(seed), discounted(EMPTY, 0.6), []
    for day in range(days):
        estimate_s = HOUR_S * 60 ** rng.random()
        wait_s = truth(rng, day, estimate_s)
        site = submit_and_start(site, shape, day * DAY_S, estimate_s, min(wait_s, 0.9 * DAY_S))
        scored.append(site.of(shape).scored[-1])
    return site, scored
