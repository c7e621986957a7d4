"""The sentences of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING

from crosstrain.domain.plural import counted
from crosstrain.placement.chain import Curve
from crosstrain.placement.offer import Option, SiteOffer
from crosstrain.placement.plan import Alternative, Finish, Role, mean
from crosstrain.placement.shape import HOUR_S

if TYPE_CHECKING:
    from crosstrain.placement.plan import SitePlan


NOTICED_S = 60.0
"""Finishes that differ by less are the same to a person."""


def hours(seconds: float) -> str:
    """A duration for people."""
    if not isfinite(seconds):
        return "never"
    if abs(seconds) >= 48 * HOUR_S:
        return f"{seconds / HOUR_S / 24:.1f} d"
    return f"{seconds / HOUR_S:.1f} h" if abs(seconds) >= HOUR_S else f"{seconds / 60:.0f} min"


def speed(tokens_per_s: float) -> str:
    """Tokens per second for people."""
    return f"{tokens_per_s:,.0f}" if tokens_per_s >= 10 else f"{tokens_per_s:.2g}"


def nothing_fits(site: SiteOffer) -> str:
    """Why a site without options is left out."""
    return f"no shape can be submitted at {site.name}: {site.note or 'none is within its limits'}"


NOTHING_LEFT = "nothing is left to train"
"""Why no job is submitted for a run that is done."""


def too_late(early_s: float, finish_s: float, tokens_per_s: float, overhead: str) -> str:
    """Why a site is left out whose queue is too long."""
    if tokens_per_s <= 0:
        return "its jobs would train nothing: their speed is 0 tokens/s"
    if not isfinite(early_s):
        why = f": {overhead}" if overhead else ""
        return f"no job of it would train before its award or its walltime is over{why}"
    return f"even the luckiest tenth of its starts ({hours(early_s)}) comes after the run is done ({hours(finish_s)})"


def role(which: Role, chance: float) -> str:
    """Why a site takes part."""
    if which is Role.MEMBER:
        return f"it begins before the run is done with probability {100 * chance:.0f} %"
    return f"it begins in time only with probability {100 * chance:.0f} %, but a job that waits costs nothing"


def role_in_short(which: Role, chance: float) -> str:
    """The same in a few words."""
    early = f"{100 * chance:.0f} %"
    return (
        f"{early} chance to start in time"
        if which is Role.MEMBER
        else f"only {early} chance to start in time, but waiting is free"
    )


def shape_in_short(others: Sequence[Alternative]) -> str:
    """What the best other shape would change, in a few words."""
    if not others:
        return "its only shape"
    best = others[0]
    if not isfinite(best.later_s):
        return f"never done with {best.what}"
    if abs(best.later_s) < NOTICED_S:
        return f"done as early with {best.what}"
    return f"done {hours(abs(best.later_s))} {'later' if best.later_s > 0 else 'earlier'} with {best.what}"


def shape(option: Option, others: Sequence[Alternative], overhead: str) -> str:
    """Why a shape was chosen, and what its jobs do not train."""
    return f"{_shape(option, others)}; {overhead}" if overhead else _shape(option, others)


def _shape(option: Option, others: Sequence[Alternative]) -> str:
    low, high = option.forecast.band(0.8)
    wait = (
        f"it waits {hours(option.forecast.quantile(0.5))} (80 % between {hours(low)} and {hours(high)}) and trains "
        f"{speed(option.tokens_per_s)} tokens/s"
    )
    if not others:
        return f"{wait}; it is the only one"
    best = others[0]
    if -NOTICED_S < best.later_s <= 0:
        return f"{wait}; with {best.what} the run would be done as early"
    if best.later_s <= 0:
        return f"{wait}; kept from the plan before, {best.what} would gain only {hours(-best.later_s)}"
    return f"{wait}; with {best.what} the run would be done {hours(best.later_s)} later"


def depth(queued: int, played: Sequence[Curve], finish_s: float, most: int) -> str:
    """Why so many jobs are queued ahead."""
    spans = [(curve.active_s(finish_s), finish_s - curve.begins[0]) for curve in played if curve.begins]
    shares = [active / span for active, span in spans if span > 0]
    if not shares:
        return "it would not train before the run is done"
    share = f"from its first start on it trains {100 * min(1.0, mean(shares)):.0f} % of the time"
    if queued == most:
        return f"{share} with as many queued ahead as its limits allow"
    return f"{share}; more queued ahead would add less than 2 %"


def accumulation(passes: int, option: Option, wanted: int, share: float) -> str:
    """Why a site accumulates so many passes."""
    windows = passes * option.windows_per_pass
    return (
        f"{passes} x {option.windows_per_pass} = {windows} of {counted(wanted, 'window')} a step, "
        f"for {100 * share:.0f} % of the speed"
    )


def finish(when: Finish, sites: Sequence[SitePlan]) -> str:
    """What decides the finish."""
    middle = when.quantile(0.5)
    if not sites:
        return "no site has reported of its queue yet: run `crosstrain collect` at each"
    if not isfinite(middle):
        return "the run would not be done within 60 days: more capacity, budget or fewer tokens are needed"
    working = [entry for entry in sites if entry.tokens > 0]
    if not working:
        return f"done in {hours(middle)}"
    most = max(working, key=lambda entry: entry.tokens)
    low, high = when.band(0.8)
    total = sum(entry.tokens for entry in working)
    return (
        f"done in {hours(middle)} (80 % between {hours(low)} and {hours(high)}); "
        f"{most.site} trains {100 * most.tokens / total:.0f} % of it"
    )
