"""Table 4 of arXiv 2610.03457: three scenarios of two sites in the fluid model, to every printed digit.

The paper prints waits, days, active hours, tokens and jobs, not the rates. All printed figures agree for 1.125 to 1.1275
(LUMI) and 2.643 to 2.649 (Snellius) times 10^9 tokens per hour on four nodes; the rates used are the ones near their
centres that give every printed digit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from crosstrain.placement.waterfill import FluidSite, wait_for_all, waterfill

TOKENS = 100e9
NODES = 4
LUMI_TOKENS_PER_S = 78_196.0
"""Of one node."""
SNELLIUS_TOKENS_PER_S = 183_800.0
"""Of one node."""
WALLTIME_H = {"LUMI": 1.0, "Snellius": 8.0}
RATE = {
    "LUMI": NODES * 3600 * LUMI_TOKENS_PER_S,
    "Snellius": NODES * 3600 * SNELLIUS_TOKENS_PER_S,
}
"""Tokens per hour."""
WAITS_H = {
    "A": {"LUMI": 0.1, "Snellius": 0.2},
    "B": {"LUMI": 0.2, "Snellius": 40.0},
    "C": {"LUMI": 40.0, "Snellius": 0.2},
}


@dataclass(frozen=True, slots=True)
class SiteRow:
    """One site of a scenario.

    Attributes:
        wait_h: hours until it begins.
        active_h: hours that it trains.
        jobs: single-node jobs that this takes, each as long as the site's walltime.
        tokens: trained there.
    """

    wait_h: float
    active_h: float
    jobs: int
    tokens: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of the table.

    Attributes:
        finish_h: hours until all tokens are trained.
        wait_all_h: the same if training begins when both sites are there.
        best_single_h: the same at the better of the two sites alone.
        sites: by name.
    """

    finish_h: float
    wait_all_h: float
    best_single_h: float
    sites: dict[str, SiteRow]

    @property
    def days(self) -> float:
        return self.finish_h / 24

    @property
    def saving(self) -> float:
        """Share of the time of waiting for all that is saved."""
        return 1 - self.finish_h / self.wait_all_h


def play(waits_h: dict[str, float]) -> Scenario:
    """One scenario, from the waits of both sites."""
    sites = [FluidSite(name, RATE[name], wait) for name, wait in waits_h.items()]
    fill = waterfill(sites, TOKENS)
    rows = {
        site.name: SiteRow(site.wait_h, active, NODES * math.ceil(active / WALLTIME_H[site.name]), tokens)
        for site, active, tokens in zip(sites, fill.active_h, fill.tokens, strict=True)
    }
    alone = min(site.wait_h + TOKENS / site.rate for site in sites)
    return Scenario(fill.finish_h, wait_for_all(sites, TOKENS), alone, rows)


def reproduce() -> dict[str, Scenario]:
    """All three scenarios."""
    return {name: play(waits) for name, waits in WAITS_H.items()}
