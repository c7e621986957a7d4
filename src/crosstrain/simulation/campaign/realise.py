"""What becomes of a choice of shapes when the true waits happen: the plan's own chain, with truth in place of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crosstrain.placement.chain import Curve
from crosstrain.placement.finish import effective_rate, finish_by_rounds
from crosstrain.placement.offer import Demand
from crosstrain.placement.shape import HOUR_S, Shape
from crosstrain.simulation.campaign.truth import Truth

MOST_JOBS = 2000


@dataclass(frozen=True, slots=True)
class Place:
    """A site of a campaign.

    Attributes:
        truth: its queue; the campaign begins at 0.
        tokens_per_s: shape -> speed of a job.
        startup_s, tail_s: of each job, without training.
    """

    truth: Truth
    tokens_per_s: Mapping[Shape, float]
    startup_s: float = 0.0
    tail_s: float = 0.0


Choice = list[tuple[Shape, int] | None]
"""Shape and depth of each site; None leaves it out."""


@dataclass(frozen=True, slots=True)
class Realised:
    """One campaign that happened.

    Attributes:
        finish_s: seconds from its start until all tokens are trained; infinite if the jobs did not train them.
        node_hours: charged until then.
        wasted: node-hours of them in which nothing was trained.
        first_start_s: of each site, seconds from the start of the campaign.
        jobs: begin and end of training of each job, of each site; none where it was left out.
        speeds: tokens per second of each site's jobs.
    """

    finish_s: float
    node_hours: float
    wasted: float
    first_start_s: tuple[float, ...]
    jobs: tuple[tuple[tuple[float, float], ...], ...]
    speeds: tuple[float, ...]


def realise(
    places: Sequence[Place],
    chosen: Choice,
    demand: Demand,
    horizon_s: float,
    together: bool = False,
) -> Realised:
    """Plays a campaign.

    Args:
        horizon_s: seconds that are played.
        together: nobody trains before the last site can begin; jobs are submitted anew then and begin at once.
    """
    first = [place.truth.wait_s(what[0], 0.0) if what else 0.0 for place, what in zip(places, chosen, strict=True)]
    held_s = max(first, default=0.0) if together else None
    chains = [
        _chain(place, *what, demand, horizon_s, held_s) if what else Curve()
        for place, what in zip(places, chosen, strict=True)
    ]
    finish_s = finish_by_rounds(chains, demand)
    charged = trained = 0.0
    for curve, place, what in zip(chains, places, chosen, strict=True):
        if what:
            charged += _charged(curve, what[0], place, finish_s)
            spans = zip(curve.begins, curve.ends, strict=True)
            trained += what[0].nodes * sum(max(0.0, min(end, finish_s) - begin) for begin, end in spans) / HOUR_S
    jobs = tuple(tuple(zip(curve.begins, curve.ends, strict=True)) for curve in chains)
    speeds = tuple(place.tokens_per_s[what[0]] if what else 0.0 for place, what in zip(places, chosen, strict=True))
    return Realised(finish_s, charged, charged - trained, tuple(first), jobs, speeds)


def _chain(place: Place, shape: Shape, depth: int, demand: Demand, horizon_s: float, held_s: float | None) -> Curve:
    """As `placement.chain` plays it, with the wait of the moment at which each job is submitted, until it would have done all
    the work alone: exchanges included, for they make the work last longer."""
    curve, free_at, trained = Curve(limit_s=horizon_s), 0.0, 0.0
    starts: list[float] = []
    rate = place.tokens_per_s[shape]
    enough = demand.tokens * rate / effective_rate(rate, demand)
    for number in range(MOST_JOBS):
        if number == 0 and held_s is not None:
            start = held_s
        else:
            asked = free_at if depth == 0 else (starts[number - depth] if number >= depth else 0.0)
            start = max(free_at, asked + place.truth.wait_s(shape, asked))
        if start >= horizon_s or trained >= enough:
            break
        starts.append(start)
        free_at = start + shape.walltime_s
        begin, end = start + place.startup_s, free_at - place.tail_s
        if end > begin:
            curve.begins.append(begin)
            curve.ends.append(end)
            curve.rates.append(rate)
            curve.done.append(trained)
            trained += rate * (end - begin)
    return curve


def _charged(curve: Curve, shape: Shape, place: Place, finish_s: float) -> float:
    """Node-hours from the start of each job to its end, or to the finish."""
    spans = (
        min(end + place.tail_s, finish_s) - (begin - place.startup_s)
        for begin, end in zip(curve.begins, curve.ends, strict=True)
    )
    return shape.nodes * sum(max(0.0, span) for span in spans) / HOUR_S
