"""The forecast of a shape's wait from what is known of its site: always an answer, as wide as the ignorance behind it.

The own plan of the queue is used where there is one, else the scheduler's estimate, else past waits of the shape, of the site, else the
partition's limit. Only waits that were known at the moment of the forecast are used; jobs still waiting count as lower bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import log

from crosstrain.domain.ids import Instant
from crosstrain.placement.blend import Told, mixed, plain_share
from crosstrain.placement.calibration import HALF_LIFE_S, Calibrated, Pair, calibrate, fading, spread
from crosstrain.placement.forecast import LEVELS, Basis, Forecast
from crosstrain.placement.observations import Estimates, Wait
from crosstrain.placement.shape import Shape
from crosstrain.placement.waits import MEMORY_MS, ShapeWaits, SiteWaits
from crosstrain.placement.weighted import Distribution, Sample

FRESH_S = 3600.0
"""A probe of this age is as good as a new one."""
DOUBLING_S = 6 * 3600.0
"""Every so much beyond that, the band grows by its own width."""
OLDEST_S = 48 * 3600.0
"""An older probe says nothing about the queue of today."""
FEWEST_WAITS = 5
"""Past waits that make a history."""
MOST_OPEN = 200
"""Open jobs of a shape that count as lower bounds, those that wait longest; thousands would say no more."""
DEFAULT_DISCOUNT = 0.6
"""Between the 0.66 of a leadership machine and the 0.22 of a high-throughput one; for sites whose accounting says nothing."""
UNKNOWN_MEAN_S = 86400.0
WORTH_SAYING = 0.05
"""Share of the plain estimate in a point that its reason tells."""


def forecast(site: SiteWaits, shape: Shape, now: Instant) -> Forecast:
    """How long a job of this shape would wait if it were submitted now."""
    return forecasts(site, [shape], now)[shape]


def forecasts(site: SiteWaits, shapes: Iterable[Shape], now: Instant) -> dict[Shape, Forecast]:
    """The same for several shapes of a site, for which its outcomes are looked through only once."""
    learnt: dict[Basis, _Learnt] = {}
    made = {}
    for shape in shapes:
        held = site.of(shape)
        probe = held.latest
        age_s = max(0.0, (now - probe.at) / 1000) if probe else 0.0
        if probe and age_s <= OLDEST_S:
            basis = Basis.PLAN if probe.plan_s is not None else Basis.TEST_ONLY
            if basis not in learnt:
                learnt[basis] = _learn(site, basis, now)
            made[shape] = _from_estimate(held, basis, probe, age_s, now, learnt[basis])
        else:
            why = f"its last probe is {age_s / 3600:.0f} h old" if probe else "it was never probed"
            made[shape] = _from_history(site, held, now, why)
    return made


def waits_known(held: ShapeWaits, now: Instant) -> list[Wait]:
    """Waits of a shape that were known at `now`, with its open jobs as lower bounds; those of the last `MEMORY_MS`."""
    known = [wait for wait in held.waits if wait.known_at <= now and wait.submitted_at > now - MEMORY_MS]
    still = [
        Wait(job.submitted_at, (now - job.submitted_at) / 1000, False, job.estimates)
        for job in held.open[:MOST_OPEN]
        if job.submitted_at <= now
    ]
    return known + still


@dataclass(frozen=True, slots=True)
class _Learnt:
    """What outcomes taught about one kind of estimate at a site.

    Attributes:
        plain: scale before any outcome.
        shapes: with their own scales.
        told: what was said of own jobs of each shape that started, and what happened.
    """

    plain: float
    shapes: Mapping[Shape, Calibrated]
    told: Mapping[Shape, Sequence[Told]]


def _learn(site: SiteWaits, basis: Basis, now: Instant) -> _Learnt:
    pairs = {held.shape: _pairs(waits_known(held, now), basis, now) for held in site.shapes}
    plain = _plain_scale(site, basis)
    shapes = {
        shape: calibrate(own, [pair for other, theirs in pairs.items() if other != shape for pair in theirs], plain)
        for shape, own in pairs.items()
    }
    return _Learnt(plain, shapes, {held.shape: _told(held, basis, now) for held in site.shapes})


def _plain_scale(site: SiteWaits, basis: Basis) -> float:
    """Accounting of others' jobs gives the discount, and to an own plan of the queue run times, so that it needs none."""
    if site.discount is None:
        return DEFAULT_DISCOUNT
    return 1.0 if basis is Basis.PLAN else site.discount


def _told(held: ShapeWaits, basis: Basis, now: Instant) -> list[Told]:
    return [
        Told(*scored.stated.experts_s, scored.wait_s, (now - scored.stated.made_at) / 1000)
        for scored in held.scored
        if scored.stated.experts_s is not None and scored.stated.basis is basis
    ]


def _from_estimate(
    held: ShapeWaits, basis: Basis, probe: Estimates, age_s: float, now: Instant, learnt: _Learnt
) -> Forecast:
    estimate_s = _estimate(probe, basis)
    assert estimate_s is not None, "a probe without both estimates is not kept"
    own, others = learnt.shapes[held.shape], [each for shape, each in learnt.shapes.items() if shape != held.shape]
    stale = f", {age_s / 3600:.0f} h old and so with a wider band" if age_s > FRESH_S else ""
    name = "own plan of the queue" if basis is Basis.PLAN else "the scheduler's estimate"
    count = sum(pair.exact for pair in own.pairs)
    reason = f"{own.scale:.2f} x {name}{stale}, by {count} of its outcomes"
    share = plain_share(
        learnt.told[held.shape],
        [told for shape, theirs in learnt.told.items() if shape != held.shape for told in theirs],
    )
    if share >= WORTH_SAYING:
        reason += f"; {share:.0%} of the point is {learnt.plain:.2f} x it, which was closer of late"
    stretch = max(0.0, age_s - FRESH_S) / DOUBLING_S
    made = _stated(held, basis, spread(own, others, estimate_s), now, count, reason, stretch)
    experts_s = made.point_s, learnt.plain * estimate_s
    return replace(made, point_s=mixed(*experts_s, share), experts_s=experts_s)


def _from_history(site: SiteWaits, held: ShapeWaits, now: Instant, why: str) -> Forecast:
    everything = [wait for other in site.shapes for wait in waits_known(other, now)]
    for basis, waits, whose in (
        (Basis.SHAPE_HISTORY, waits_known(held, now), "its past waits"),
        (Basis.SITE_HISTORY, everything, "past waits of all shapes at the site"),
    ):
        count = sum(wait.started for wait in waits)
        if count >= FEWEST_WAITS:
            return _stated(held, basis, history(waits, now), now, count, f"{whose}, {count} of them: {why}")
    limit_s = dict(site.partition_limits_s).get(held.shape.partition)
    basis = Basis.UNKNOWN if limit_s is None else Basis.PARTITION_LIMIT
    told = "nothing is known of its queue" if limit_s is None else f"its partition's limit of {limit_s / 3600:.0f} h"
    mean_s = limit_s or UNKNOWN_MEAN_S
    waits_s = tuple(-mean_s * log(1 - level) for level in LEVELS)
    return Forecast(now, basis, mean_s * log(2), LEVELS, waits_s, 0, f"{told}: {why}")


def history(waits: Iterable[Wait], now: Instant) -> Distribution:
    """Past waits in seconds, weighted by age."""
    return Distribution(
        Sample(wait.wait_s, fading((now - wait.submitted_at) / 1000, HALF_LIFE_S), wait.started) for wait in waits
    )


def _stated(
    held: ShapeWaits, basis: Basis, waits: Distribution, now: Instant, count: int, reason: str, stretch: float = 0.0
) -> Forecast:
    point_s = waits.quantile(0.5)
    quantiles = [waits.smooth_quantile(outward(level, waits.size)) for level in held.adapted(basis, LEVELS)]
    stretched = (max(0.0, point_s + (1 + stretch) * (quantile - point_s)) for quantile in quantiles)
    return Forecast(now, basis, point_s, LEVELS, tuple(accumulate(stretched, max)), count, reason)


def outward(level: float, samples: float) -> float:
    """The level of n samples' quantile that a next value exceeds as often as promised: (n + 1) / n times as far from the other end.

    The correction of split conformal prediction (Vovk et al., 2005).
    """
    more = 1 + 1 / samples
    return min(1.0, more * level) if level >= 0.5 else max(0.0, 1 - more * (1 - level))


def _pairs(waits: Sequence[Wait], basis: Basis, now: Instant) -> list[Pair]:
    told = [(wait, _estimate(wait.estimates, basis)) for wait in waits if wait.estimates is not None]
    return [
        Pair(estimate_s, wait.wait_s, wait.started, (now - wait.submitted_at) / 1000)
        for wait, estimate_s in told
        if estimate_s is not None
    ]


def _estimate(probe: Estimates | None, basis: Basis) -> float | None:
    if probe is None:
        return None
    return probe.plan_s if basis is Basis.PLAN else probe.test_only_s
