"""When a run is done: against the fluid model, and against rounds played one by one."""

from __future__ import annotations

from math import inf

import pytest
from tests.placement.queues import HOUR, NOW, certain, demand, option, site, spread

from crosstrain.placement.chain import Chains, Curve
from crosstrain.placement.draws import draws
from crosstrain.placement.finish import finish_by_curves, finish_by_rounds
from crosstrain.placement.offer import Demand, SiteOffer
from crosstrain.placement.waterfill import FluidSite, waterfill

HORIZON = 1000 * HOUR


def chains(*sites: SiteOffer, sample: int = 0) -> list[Curve]:
    return [
        Chains(each, each.options[0], HORIZON, NOW).play(1, draws(index, sample, 11), 200)
        for index, each in enumerate(sites)
    ]


@pytest.mark.parametrize(("early", "late"), [(0.1, 0.2), (0.2, 40.0), (0.0, 0.0)])
def test_without_gaps_and_exchanges_it_is_the_waterfill(early: float, late: float) -> None:
    sites = [site("a", option(certain(early * HOUR), 3)), site("b", option(certain(late * HOUR), 7))]
    tokens = 5e7
    fluid = waterfill([FluidSite("a", 300 * HOUR, early), FluidSite("b", 700 * HOUR, late)], tokens)
    curves = chains(*sites)
    assert finish_by_rounds(curves, demand(tokens)) == pytest.approx(fluid.finish_h * HOUR)
    assert finish_by_curves(curves, tokens, HORIZON) == pytest.approx(fluid.finish_h * HOUR, abs=31)
    assert finish_by_curves(curves, tokens, HORIZON, guess_s=1.1 * fluid.finish_h * HOUR) == pytest.approx(
        fluid.finish_h * HOUR, abs=31
    )


@pytest.mark.parametrize("sample", range(5))
def test_the_sweep_is_the_run_played_round_by_round(sample: int) -> None:
    sites = [site(f"s{i}", option(spread((i + 1) * HOUR), 1 + i, hours=3.0), startup_s=300.0) for i in range(3)]
    curves, work = chains(*sites, sample=sample), demand(2e7, exchange_s=20.0)
    assert finish_by_rounds(curves, work) == pytest.approx(_round_by_round(curves, work), abs=120)


def _round_by_round(curves: list[Curve], work: Demand, step_s: float = 1.0) -> float:
    """Rounds of G tokens with an exchange after each, in steps of one second; only training time moves a round on."""
    now, left, in_round, exchange = 0.0, work.tokens, 0.0, 0.0
    while left > 0:
        rate = sum(
            rate
            for curve in curves
            for begin, end, rate in zip(curve.begins, curve.ends, curve.rates, strict=True)
            if begin <= now < end
        )
        now += step_s
        if not rate:
            continue
        if exchange > 0:
            exchange -= step_s
            continue
        in_round, left = in_round + rate * step_s, left - rate * step_s
        if in_round >= work.round_tokens:
            in_round, exchange = in_round - work.round_tokens, work.exchange_s
    return now


def test_a_run_that_cannot_be_done_is_never_done() -> None:
    poor = chains(site("a", option(certain(0.0)), node_hours_left=40.0))
    assert finish_by_rounds(poor, demand(1e12)) == inf
    assert finish_by_curves(poor, 1e12, HORIZON) == inf
