"""What is known of a site's queue, and how it changes with what is seen: pure functions of a state and an event.

The state is a plain value of tuples and numbers, so that it can be kept as JSON. `predict.forecast` reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite

from crosstrain.domain.ids import Instant, SiteName
from crosstrain.placement.conformal import adapt
from crosstrain.placement.error_record import Scored
from crosstrain.placement.forecast import Basis, Forecast
from crosstrain.placement.observations import Anomaly, Estimates, Wait, sane
from crosstrain.placement.shape import Shape

MEMORY_MS = 60 * 86_400_000
"""Waits and scores older than this are forgotten: queues drift."""
SAME_MS = 60_000
"""Times of one job that differ by less are the same time: schedulers round, and reports travel."""
MOST_WAITS = 400
"""Of one shape; where others' jobs are visible there can be thousands."""


@dataclass(frozen=True, slots=True)
class OpenJob:
    """An own job that waits.

    Attributes:
        job: name that is unique at the site.
        stated: the forecast that was made at its submission.
    """

    job: str
    submitted_at: Instant
    estimates: Estimates | None
    stated: Forecast


@dataclass(frozen=True, slots=True)
class ShapeWaits:
    """One shape at one site.

    Attributes:
        latest: the last probe.
        waits: what happened, in the order of becoming known.
        open: own jobs that wait.
        levels: basis -> adapted levels (`conformal`).
        scored: own jobs that started, with what had been forecast, in the order of their starts.
    """

    shape: Shape
    latest: Estimates | None = None
    waits: tuple[Wait, ...] = ()
    open: tuple[OpenJob, ...] = ()
    levels: tuple[tuple[Basis, tuple[float, ...]], ...] = ()
    scored: tuple[Scored, ...] = ()

    def adapted(self, basis: Basis, levels: tuple[float, ...]) -> tuple[float, ...]:
        """The adapted levels of a basis; the promised ones until something was learnt."""
        return dict(self.levels).get(basis, levels)


@dataclass(frozen=True, slots=True)
class SiteWaits:
    """One site.

    Attributes:
        discount: used over requested node-time of recent jobs, weighted by node-time; None if accounting tells nothing.
        partition_limits_s: partition -> longest time limit of its jobs.
        past_estimates: probes whose start had passed, counted as now.
        absurd_estimates: probes that were dropped.
    """

    site: SiteName
    shapes: tuple[ShapeWaits, ...] = ()
    discount: float | None = None
    partition_limits_s: tuple[tuple[str, float], ...] = ()
    past_estimates: int = 0
    absurd_estimates: int = 0

    def of(self, shape: Shape) -> ShapeWaits:
        """What is known of a shape; nothing, if it was never seen."""
        return next((held for held in self.shapes if held.shape == shape), ShapeWaits(shape))


def probed(site: SiteWaits, shape: Shape, estimates: Estimates) -> SiteWaits:
    """A probe came in. One that is older than the last changes nothing."""
    held = site.of(shape)
    if held.latest is not None and estimates.at < held.latest.at:
        return site
    readings = [sane(value) for value in (estimates.test_only_s, estimates.plan_s)]
    wrong = [anomaly for _, anomaly in readings]
    site = replace(
        site,
        past_estimates=site.past_estimates + wrong.count(Anomaly.PAST),
        absurd_estimates=site.absurd_estimates + wrong.count(Anomaly.ABSURD),
    )
    (test_only, _), (plan, _) = readings
    if test_only is None and plan is None:
        return site
    return _with(site, replace(held, latest=Estimates(estimates.at, test_only, plan)))


def discounted(site: SiteWaits, discount: float) -> SiteWaits:
    """Accounting said how much of their requested time recent jobs used; a value outside (0, 1] changes nothing."""
    return replace(site, discount=discount) if 0 < discount <= 1 else site


def limited(site: SiteWaits, partition: str, longest_s: float) -> SiteWaits:
    """A partition's longest time limit became known; one without a limit is as if it were unknown."""
    others = tuple(item for item in site.partition_limits_s if item[0] != partition)
    known = ((partition, longest_s),) if isfinite(longest_s) and longest_s > 0 else ()
    return replace(site, partition_limits_s=others + known)


class Learning:
    """Takes in what own jobs of one site did, event by event; what is known is copied once, however many events there are.

    Args:
        site: what is known before.
    """

    def __init__(self, site: SiteWaits) -> None:
        self._site = site
        self._held = {held.shape: held for held in site.shapes}
        self._open = {held.shape: {job.job: job for job in held.open} for held in site.shapes}
        self._shape_of = {job.job: held.shape for held in site.shapes for job in held.open}
        self._waits: dict[Shape, list[Wait]] = {}

    def knows(self, job: str, shape: Shape, now: Instant) -> bool:
        """Whether an own job that waits was told of already, with the same beginning of its wait."""
        before = self._open.get(shape, {}).get(job)
        return before is not None and now - before.submitted_at < SAME_MS

    def submitted(self, job: str, shape: Shape, now: Instant, stated: Forecast) -> None:
        """An own job was submitted, with this forecast of its wait. The same job again changes nothing, unless it became
        eligible later, because it comes after another: its wait begins then."""
        if self.knows(job, shape, now):
            return
        mine = self._open.setdefault(shape, {})
        mine.pop(job, None)
        mine[job] = OpenJob(job, now, self._of(shape).latest, stated)
        self._shape_of[job] = shape

    def started(self, job: str, now: Instant) -> None:
        """An own job started: the one event that bands and the record of past error learn from. An unknown job changes
        nothing."""
        shape, mine = self._close(job)
        if shape is None or mine is None:
            return
        held = self._of(shape)
        wait_s = max(0.0, (now - mine.submitted_at) / 1000)
        basis, levels = mine.stated.basis, mine.stated.levels
        moved = adapt(held.adapted(basis, levels), levels, mine.stated.waits_s, wait_s)
        self._held[shape] = replace(
            held,
            levels=(*(item for item in held.levels if item[0] != basis), (basis, moved)),
            scored=(*held.scored[-MOST_WAITS + 1 :], _score(self._site, mine, wait_s)),
        )
        self._waits.setdefault(shape, []).append(Wait(mine.submitted_at, wait_s, True, mine.estimates))

    def gone(self, job: str, now: Instant) -> None:
        """An own job was cancelled while it waited: its wait was longer than that. An unknown job changes nothing."""
        shape, mine = self._close(job)
        if shape is None or mine is None:
            return
        wait_s = max(0.0, (now - mine.submitted_at) / 1000)
        self._waits.setdefault(shape, []).append(Wait(mine.submitted_at, wait_s, False, mine.estimates))

    def learnt(self) -> SiteWaits:
        """What is known now."""
        shapes = sorted(self._held.keys() | self._open.keys())
        return replace(
            self._site,
            shapes=tuple(
                _remember(
                    replace(self._of(shape), open=tuple(self._open.get(shape, {}).values())),
                    self._waits.get(shape, ()),
                )
                for shape in shapes
            ),
        )

    def _of(self, shape: Shape) -> ShapeWaits:
        return self._held.get(shape) or ShapeWaits(shape)

    def _close(self, job: str) -> tuple[Shape | None, OpenJob | None]:
        shape = self._shape_of.pop(job, None)
        return shape, None if shape is None else self._open[shape].pop(job, None)


def submitted(site: SiteWaits, job: str, shape: Shape, now: Instant, stated: Forecast) -> SiteWaits:
    """As `Learning.submitted`, of one job."""
    learning = Learning(site)
    learning.submitted(job, shape, now, stated)
    return learning.learnt()


def started(site: SiteWaits, job: str, now: Instant) -> SiteWaits:
    """As `Learning.started`, of one job."""
    learning = Learning(site)
    learning.started(job, now)
    return learning.learnt()


def gone(site: SiteWaits, job: str, now: Instant) -> SiteWaits:
    """As `Learning.gone`, of one job."""
    learning = Learning(site)
    learning.gone(job, now)
    return learning.learnt()


def waited(site: SiteWaits, shape: Shape, wait: Wait) -> SiteWaits:
    """Accounting told of a job of like shape, an own one of earlier or somebody else's. No wait, or a negative one, changes nothing."""
    if not isfinite(wait.wait_s) or wait.wait_s < 0:
        return site
    return _with(site, _remember(site.of(shape), [wait]))


def _score(site: SiteWaits, mine: OpenJob, wait_s: float) -> Scored:
    raw = mine.estimates.test_only_s if mine.estimates else None
    discounted_s = None if raw is None or site.discount is None else raw * site.discount
    return Scored(mine.stated, wait_s, raw, discounted_s)


def _remember(held: ShapeWaits, waits: Sequence[Wait]) -> ShapeWaits:
    if not waits:
        return held
    oldest = max(wait.known_at for wait in waits) - MEMORY_MS
    kept = [other for other in (*held.waits, *waits) if other.submitted_at >= oldest]
    return replace(held, waits=tuple(sorted(kept, key=lambda w: w.known_at)[-MOST_WAITS:]))


def _with(site: SiteWaits, held: ShapeWaits) -> SiteWaits:
    others = (other for other in site.shapes if other.shape != held.shape)
    return replace(site, shapes=tuple(sorted((*others, held), key=lambda item: item.shape)))
