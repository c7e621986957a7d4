"""A chain of jobs at one site: when they train, for given waits.

With d jobs queued ahead, job k is submitted when job k - d starts (the first d at once), and begins when its wait is over
and the job before it has ended. With d = 0 it is submitted when the job before it ends. So a wait that is shorter than the
jobs in front of it costs nothing; this is the largest lever there is on the share of time that a site trains.

The forecast is of jobs submitted now. The later a job is submitted, the more of its wait is the usual one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from crosstrain.placement.draws import GRID, tabulated
from crosstrain.placement.offer import Job, JobState, Option, SiteOffer
from crosstrain.placement.shape import HOUR_S, Shape
from crosstrain.placement.usual import share_of_today

MOST_JOBS = 30
"""Jobs of a chain that are played one by one; what comes after them has their mean pace."""


@dataclass(slots=True)
class Curve:
    """Tokens that one chain has trained as a function of time.

    Attributes:
        begins, ends: seconds from now, of each job's training, increasing and apart.
        rates: tokens per second of each job.
        done: tokens trained before each job begins.
        node_hours: charged for all jobs up to this one, inclusive.
        cycle_s: mean seconds from one begin to the next, which extrapolates beyond the last job; 0: none comes after it.
        more_jobs: how many may come after it before the award is used up.
        limit_s: nothing trains after this.
    """

    begins: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    done: list[float] = field(default_factory=list)
    node_hours: list[float] = field(default_factory=list)
    cycle_s: float = 0.0
    more_jobs: float = 0.0
    limit_s: float = inf

    def at(self, seconds: float) -> float:
        """Tokens trained by then."""
        place = bisect_right(self.begins, seconds) - 1
        if place < 0:
            return 0.0
        begin, rate = self.begins[place], self.rates[place]
        trained = self.done[place] + rate * (min(seconds, self.ends[place]) - begin)
        if place + 1 == len(self.begins) and self.cycle_s:
            cycles = (min(seconds, self.limit_s) - begin) / self.cycle_s - 1
            trained += rate * (self.ends[place] - begin) * min(max(0.0, cycles), self.more_jobs)
        return trained

    def active_s(self, seconds: float) -> float:
        """Seconds of training by then."""
        played = sum(max(0.0, min(seconds, end) - begin) for begin, end in zip(self.begins, self.ends, strict=True))
        if self.begins and self.rates[-1]:
            played += max(0.0, self.at(seconds) - self.at(min(seconds, self.ends[-1]))) / self.rates[-1]
        return played

    def jobs_until(self, seconds: float) -> int:
        """Jobs that have begun by then, of those that were played."""
        return bisect_right(self.begins, seconds)

    def node_hours_until(self, seconds: float) -> float:
        """Charged by then, if what runs then is ended."""
        count = self.jobs_until(seconds)
        if count == 0:
            return 0.0
        before = self.node_hours[count - 2] if count > 1 else 0.0
        span = self.ends[count - 1] - self.begins[count - 1]
        part = min(1.0, (seconds - self.begins[count - 1]) / span)
        beyond = max(0.0, self.at(seconds) - self.at(min(seconds, self.ends[-1])))
        per_token = (self.node_hours[-1] - before) / (self.rates[-1] * span) if self.rates[-1] else 0.0
        return before + (self.node_hours[count - 1] - before) * part + beyond * per_token


@dataclass(frozen=True, slots=True)
class _Run:
    """One job of a chain: what it is, what is left of its walltime, and its waits at the steps of the grid."""

    shape: Shape
    tokens_per_s: float
    left_s: float
    waits: Sequence[float] | None
    queued: bool


class Chains:
    """The chains of one option at a site, for any waits.

    Args:
        option: of every job that is not queued yet.
        now: the present, in the units of `site.jobs`.
    """

    def __init__(self, site: SiteOffer, option: Option, horizon_s: float, now: int) -> None:
        self.site = site
        self.option = option
        ends_s = inf if site.award_ends is None else (site.award_ends - now) / 1000
        self.limit_s = min(horizon_s, ends_s)
        waits = tabulated(option.forecast)
        self.later = _Run(option.shape, option.tokens_per_s, float(option.shape.walltime_s), waits, queued=False)
        self.usual = None if option.usual is None else tabulated(option.usual)
        self.standing = _standing(site, option, waits, now)

    def play(self, depth: int, draw: Callable[[int], float], most_jobs: int = MOST_JOBS) -> Curve:
        """Plays one chain until the horizon, the award or `most_jobs`.

        Args:
            depth: jobs queued ahead.
            draw: number of the job in the chain -> a uniform number in [0, 1) that picks its wait.
        """
        return _play(self, depth, draw, most_jobs)

    def wait_s(self, run: _Run, submitted_s: float, step: int) -> float:
        """What a job waits that is submitted then, at one step of the grid: quantiles of both forecasts, averaged."""
        if run.waits is None:
            return 0.0
        today = run.waits[step]
        if self.usual is None or submitted_s == 0.0:
            return today
        share = share_of_today(submitted_s)
        return share * today + (1 - share) * self.usual[step]


def _play(chains: Chains, depth: int, draw: Callable[[int], float], most_jobs: int) -> Curve:
    curve, site, later = Curve(limit_s=chains.limit_s), chains.site, chains.later
    standing = chains.standing
    starts: list[float] = []
    free_at = charged = trained = 0.0
    for number in range(most_jobs):
        run = standing[number] if number < len(standing) else later
        at = 0.0 if run.queued else _submitted(starts, depth, free_at)
        start = max(free_at, at + chains.wait_s(run, at, int(draw(number) * GRID)))
        stop = min(start + run.left_s, curve.limit_s)
        charged += run.shape.nodes * (stop - start) / HOUR_S
        if start >= curve.limit_s or charged > site.node_hours_left:
            return curve
        starts.append(start)
        free_at = start + run.left_s
        begin = start if run.waits is None else start + site.startup_s
        if stop - site.tail_s > begin:
            curve.begins.append(begin)
            curve.ends.append(stop - site.tail_s)
            curve.rates.append(run.tokens_per_s)
            curve.done.append(trained)
            curve.node_hours.append(charged)
            trained += run.tokens_per_s * (stop - site.tail_s - begin)
    if len(curve.begins) > 1:
        curve.cycle_s = (curve.begins[-1] - curve.begins[0]) / (len(curve.begins) - 1)
        curve.more_jobs = (site.node_hours_left - charged) / later.shape.node_hours
    return curve


def _submitted(starts: list[float], depth: int, free_at: float) -> float:
    """When the next job goes to the scheduler."""
    if depth == 0:
        return free_at
    return starts[len(starts) - depth] if len(starts) >= depth else 0.0


def _standing(site: SiteOffer, option: Option, waits: Sequence[float], now: int) -> list[_Run]:
    """Jobs that are there already, the running one first. A queued one waits from now on."""
    if not site.jobs:
        return []
    rates = {each.shape: each.tokens_per_s for each in site.options}
    per_node = option.tokens_per_s / max(1, option.shape.nodes)
    found = []
    for job in sorted(site.jobs, key=_running_first):
        rate = rates.get(job.shape, per_node * job.shape.nodes)
        if job.state is JobState.RUNNING:
            left = max(0.0, job.shape.walltime_s - (now - job.since) / 1000)
            found.append(_Run(job.shape, rate, left, None, queued=True))
        else:
            left = float(job.shape.walltime_s)
            found.append(_Run(job.shape, rate, left, tabulated(job.forecast) if job.forecast else waits, queued=True))
    return found


def _running_first(job: Job) -> tuple[bool, int, str]:
    return job.state is not JobState.RUNNING, job.since, job.name
