"""The planner: chooses members, shapes, depth of the queue and accumulation.

Late binding first: work is leased when a job starts, so a job that waits costs nothing and every site that can still help is
submitted to. Forecasts decide what is submitted - the shape, its walltime, how many jobs ahead - and never alone whether. The
choice minimises the mean finish over sampled waits: around the finish every site adds its own tokens, so the best option of
a site is the one with the most tokens by then, whatever the others do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite

from crosstrain.domain.ids import Instant, SiteName
from crosstrain.placement import explain
from crosstrain.placement.chain import MOST_JOBS, Chains, Curve
from crosstrain.placement.draws import FEW, MANY, draws
from crosstrain.placement.finish import effective_rate, finish_by_curves, finish_by_rounds
from crosstrain.placement.offer import Demand, JobState, Option, SiteOffer
from crosstrain.placement.plan import Alternative, Finish, Plan, Role, SitePlan, mean, next_items
from crosstrain.placement.shape import HOUR_S, Shape

HORIZON_S = 60 * 24 * HOUR_S
"""How far a plan looks."""
MOST_PLAYED = 1500
"""Jobs of a chain that are played for the plan that is shown: 60 days of one-hour jobs."""
WORTH_CHANGING = 0.05
"""A shape replaces the one of the plan before only if the run is done earlier by this share of what is left of it ..."""
WORTH_CHANGING_S = 600.0
"""... and by this much."""
SHOWN = 3
"""Other shapes of a site that are compared in full."""
ENOUGH = 0.98
"""The smallest depth is taken whose chain trains this share of what the deepest would."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """One site with the option that is tried, and its chains, one per sample."""

    chains: Chains
    curves: tuple[Curve, ...]

    @property
    def option(self) -> Option:
        return self.chains.option


@dataclass(frozen=True, slots=True)
class _Search:
    """The problem while it is solved."""

    demand: Demand
    sites: Sequence[SiteOffer]
    now: Instant

    def play(
        self, index: int, chains: Chains, depth: int, samples: int, most_jobs: int = MOST_JOBS
    ) -> tuple[Curve, ...]:
        return tuple(chains.play(depth, draws(index, sample, samples), most_jobs) for sample in range(samples))

    def choice(self, index: int, option: Option) -> _Choice:
        chains = Chains(self.sites[index], option, HORIZON_S, self.now)
        return _Choice(chains, self.play(index, chains, deepest(self.sites[index]), FEW))

    def finishes(self, chosen: Mapping[int, _Choice], near: Sequence[float] = ()) -> list[float]:
        """Seconds until done, per sample; infinite beyond the horizon.

        Args:
            near: finishes of a similar choice, where to look first.
        """
        rate = sum(choice.option.tokens_per_s for choice in chosen.values())
        slowed = self.demand.tokens * (rate / effective_rate(rate, self.demand) if rate else 1.0)
        guesses = near or [0.0] * FEW
        return [
            finish_by_curves([choice.curves[sample] for choice in chosen.values()], slowed, HORIZON_S, guesses[sample])
            for sample in range(FEW)
        ]


def deepest(site: SiteOffer) -> int:
    """Jobs that may be queued ahead of a running one."""
    return max(0, min(site.max_depth, site.max_queued - 1))


def make_plan(run: str, demand: Demand, sites: Sequence[SiteOffer], now: Instant, previous: Plan | None = None) -> Plan:
    """Plans the rest of a run. The same inputs make the same plan, and its own result as `previous` changes nothing.

    Args:
        run: name, the first part of the jobs' names.
        previous: the plan before this one; its shapes are kept unless another is clearly better.
    """
    if demand.tokens <= 0:
        return _done(sites, now)
    search = _Search(demand, sites, now)
    tried, chosen = _choose(search, previous)
    return _describe(run, search, tried, chosen)


def _done(sites: Sequence[SiteOffer], now: Instant) -> Plan:
    """The plan of a run that has nothing left to train: jobs that are there end by themselves as soon as they ask for work."""
    entries = tuple(SitePlan(site.name, Role.OUT, explain.NOTHING_LEFT, keep=_names(site)) for site in sites)
    return Plan(now, entries, Finish((0.0,)), reason=f"{explain.NOTHING_LEFT}: no job is submitted")


def choose_shapes(demand: Demand, sites: Sequence[SiteOffer], now: Instant) -> dict[SiteName, Shape]:
    """The shapes that `make_plan` would choose, without the rest of a plan; sites without options are left out."""
    _, chosen = _choose(_Search(demand, sites, now), None)
    return {sites[index].name: choice.option.shape for index, choice in chosen.items()}


def _choose(search: _Search, previous: Plan | None) -> tuple[dict[int, list[_Choice]], dict[int, _Choice]]:
    """Site -> all its options, and site -> the chosen one."""
    tried = {
        index: [search.choice(index, option) for option in site.options]
        for index, site in enumerate(search.sites)
        if site.options
    }
    chosen = _settle(search, tried, _first(tried))
    return tried, _keep_what_is_as_good(search, tried, chosen, previous)


def _first(tried: Mapping[int, Sequence[_Choice]]) -> dict[int, _Choice]:
    """Each site's fastest in the long run."""
    return {
        index: max(choices, key=lambda choice: _tokens(choice, [HORIZON_S] * FEW)) for index, choices in tried.items()
    }


def _tokens(choice: _Choice, finishes: Sequence[float]) -> float:
    return sum(curve.at(seconds) for curve, seconds in zip(choice.curves, finishes, strict=True))


def _settle(search: _Search, tried: Mapping[int, Sequence[_Choice]], chosen: dict[int, _Choice]) -> dict[int, _Choice]:
    """Chooses each site's best for the finish, which moves the finish, until nothing changes or it gets no better."""
    finishes = search.finishes(chosen)
    for _ in range(8):
        better = {
            index: max(choices, key=lambda choice: _tokens(choice, [min(each, HORIZON_S) for each in finishes]))
            for index, choices in tried.items()
        }
        changed = search.finishes(better, finishes)
        if _comparable(changed) >= _comparable(finishes):
            return chosen
        chosen, finishes = better, changed
    return chosen


def _comparable(finishes: Sequence[float]) -> float:
    """Mean in seconds; what is not done within the horizon counts as twice the horizon."""
    return mean([seconds if isfinite(seconds) else 2 * HORIZON_S for seconds in finishes])


def _keep_what_is_as_good(
    search: _Search, tried: Mapping[int, Sequence[_Choice]], chosen: dict[int, _Choice], previous: Plan | None
) -> dict[int, _Choice]:
    """Hysteresis: forecasts move with every probe, and a plan that moves with them loses the age of queued jobs."""
    if previous is None:
        return chosen
    for index, choices in tried.items():
        before = previous.of(search.sites[index].name)
        kept = next((choice for choice in choices if before and choice.option.shape == before.shape), None)
        if kept is None or kept is chosen[index]:
            continue
        best = _comparable(search.finishes(chosen))
        loss = _comparable(search.finishes({**chosen, index: kept})) - best
        if loss < max(WORTH_CHANGING_S, WORTH_CHANGING * best):
            chosen = {**chosen, index: kept}
    return chosen


def _describe(run: str, search: _Search, tried: Mapping[int, Sequence[_Choice]], chosen: Mapping[int, _Choice]) -> Plan:
    depths = {index: _depth(search, index, choice) for index, choice in chosen.items()}
    played = {
        index: search.play(index, choice.chains, depths[index], MANY, MOST_PLAYED) for index, choice in chosen.items()
    }
    samples = []
    for sample in range(MANY):
        curves = [each[sample] for each in played.values()]
        samples.append(finish_by_rounds(curves, search.demand) if curves else inf)
    finish = Finish(tuple(sorted(samples)))
    usual = min(finish.quantile(0.5), HORIZON_S)
    base = search.finishes(chosen)
    shares = _accumulation(search, chosen, usual)
    entries = []
    for index, site in enumerate(search.sites):
        if index not in chosen:
            entries.append(SitePlan(site.name, Role.OUT, explain.nothing_fits(site), keep=_names(site)))
            continue
        entry = _entry(run, search, index, chosen[index], depths[index], played[index], usual)
        regrets = _shapes(search, tried[index], chosen, index, base)
        passes, why = shares.get(index, (None, ""))
        short = "" if entry.role is Role.OUT else f"{entry.summary}; {explain.shape_in_short(regrets)}"
        entries.append(
            replace(
                entry,
                summary=short,
                shape_reason=explain.shape(chosen[index].option, regrets, site.overhead),
                alternatives=regrets,
                accumulation=passes if entry.role is not Role.OUT else None,
                accumulation_reason=why if entry.role is not Role.OUT else "",
            )
        )
    others = _whole(search, tried, chosen, base)
    return Plan(search.now, tuple(entries), finish, others, explain.finish(finish, entries))


def _depth(search: _Search, index: int, choice: _Choice) -> int:
    most = deepest(search.sites[index])
    horizon = [min(HORIZON_S, max(curve.ends[-1] if curve.ends else 0.0, HOUR_S)) for curve in choice.curves]
    target = ENOUGH * _tokens(choice, horizon)
    for depth in range(most):
        if _tokens(_Choice(choice.chains, search.play(index, choice.chains, depth, FEW)), horizon) >= target:
            return depth
    return most


def _entry(
    run: str, search: _Search, index: int, choice: _Choice, depth: int, played: Sequence[Curve], usual: float
) -> SitePlan:
    site = search.sites[index]
    starts = sorted(curve.begins[0] if curve.begins else inf for curve in played)
    chance = sum(start < usual for start in starts) / len(starts)
    early = starts[len(starts) // 10]
    keep, pending = _names(site), sum(job.state is JobState.PENDING for job in site.jobs)
    if (early > usual and not site.jobs) or choice.option.tokens_per_s <= 0:
        why = explain.too_late(early, usual, choice.option.tokens_per_s, site.overhead)
        return SitePlan(site.name, Role.OUT, why, keep=_names(site), note=site.note)
    role = Role.MEMBER if chance >= 0.5 else Role.RESERVE
    wanted = max(1, depth) if not site.jobs else depth
    count = max(0, min(wanted - pending, site.max_queued - len(site.jobs)))
    return SitePlan(
        site=site.name,
        role=role,
        summary=explain.role_in_short(role, chance),
        reason=explain.role(role, chance),
        note=site.note,
        shape=choice.option.shape,
        depth=depth,
        depth_reason=explain.depth(depth, played, usual, deepest(site)),
        submit=next_items(run, site.name, choice.option.shape, count, site.last_number),
        keep=keep,
        first_start_s=tuple(starts[round(p * (len(starts) - 1))] for p in (0.1, 0.5, 0.9)),
        tokens=mean([curve.at(usual) for curve in played]),
        active_h=mean([curve.active_s(usual) for curve in played]) / HOUR_S,
        jobs=mean([curve.jobs_until(usual) for curve in played]),
        node_hours=mean([curve.node_hours_until(usual) for curve in played]),
    )


def _names(site: SiteOffer) -> tuple[str, ...]:
    return tuple(job.name for job in site.jobs)


def _shapes(
    search: _Search, choices: Sequence[_Choice], chosen: Mapping[int, _Choice], index: int, base: Sequence[float]
) -> tuple[Alternative, ...]:
    """The best other shapes of a site by how much later the run would be done with them."""
    others = [choice for choice in choices if choice is not chosen[index]]
    best = sorted(others, key=lambda choice: -_tokens(choice, [min(seconds, HORIZON_S) for seconds in base]))
    return _ranked(
        [
            Alternative(str(choice.option.shape), _later(search, {**chosen, index: choice}, base))
            for choice in best[:SHOWN]
        ]
    )


def _whole(
    search: _Search, tried: Mapping[int, Sequence[_Choice]], chosen: Mapping[int, _Choice], base: Sequence[float]
) -> tuple[Alternative, ...]:
    """Other ways to run the whole."""
    found = []
    for index, choice in chosen.items():
        others = {other: each for other, each in chosen.items() if other != index}
        if others:
            name = search.sites[index].name
            found.append(Alternative(f"without {name}", _later(search, others, base)))
            found.append(Alternative(f"{name} alone", _later(search, {index: choice}, base)))
    if chosen:
        middle = {index: choices[len(choices) // 2] for index, choices in tried.items()}
        found.append(Alternative("every site with the middle one of its shapes", _later(search, middle, base)))
    return _ranked(found)


def _later(search: _Search, instead: Mapping[int, _Choice], base: Sequence[float]) -> float:
    """Mean seconds that the run would be done later; infinite if it would not be done."""
    found = search.finishes(instead, [seconds if isfinite(seconds) else 0.0 for seconds in base])
    return mean(found) - mean(base) if all(map(isfinite, base)) else inf


def _ranked(found: Sequence[Alternative]) -> tuple[Alternative, ...]:
    return tuple(sorted(found, key=lambda each: (each.later_s, each.what)))


def _accumulation(search: _Search, chosen: Mapping[int, _Choice], usual: float) -> dict[int, tuple[int, str]]:
    """Splits the combined batch over the sites in proportion to their speed, so that their steps last equally long."""
    wanted = search.demand.windows_per_step
    speeds = {
        index: choice.option.tokens_per_s
        for index, choice in chosen.items()
        if any(curve.at(usual) > 0 for curve in choice.curves)
    }
    total = sum(speeds.values())
    if not wanted or not total:
        return {}
    found = {}
    for index, speed in speeds.items():
        option = chosen[index].option
        passes = max(1, round(wanted * speed / total / option.windows_per_pass))
        found[index] = (passes, explain.accumulation(passes, option, wanted, speed / total))
    return found
