"""The fluid case: sites of fixed rates that begin after known waits and then run without a gap.

The work W is poured over the sites like water over steps: T solves sum_i r_i max(0, T - w_i) = W. A site whose wait is
longer than T gets nothing. This is the model behind Table 4 of arXiv 2610.03457; it knows no requeue gaps, no start-up
and no cost of an exchange, for which see `chain` and `rounds`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FluidSite:
    """A site of the fluid model.

    Attributes:
        name: of the site.
        rate: tokens per hour while it runs.
        wait_h: hours until it begins.
    """

    name: str
    rate: float
    wait_h: float


@dataclass(frozen=True, slots=True)
class Fill:
    """Where the work went.

    Attributes:
        finish_h: T, hours from now.
        active_h: max(0, T - w_i), in the order of the sites.
        tokens: r_i times that.
    """

    finish_h: float
    active_h: tuple[float, ...]
    tokens: tuple[float, ...]


def waterfill(sites: Sequence[FluidSite], tokens: float) -> Fill:
    """Pours `tokens` over the sites.

    Raises:
        ValueError: no site with a positive rate, a negative wait, or work that is not positive.
    """
    if not math.isfinite(tokens) or tokens <= 0:
        raise ValueError(f"expected a positive number of tokens, found {tokens}")
    useful = sorted((site for site in sites if site.rate > 0), key=lambda site: site.wait_h)
    if not useful or useful[0].wait_h < 0:
        raise ValueError("expected at least one site with a positive rate, and no negative wait")
    rate = poured = 0.0
    finish = math.inf
    for site in useful:
        if site.wait_h >= finish:
            break
        rate += site.rate
        poured += site.rate * site.wait_h
        finish = (tokens + poured) / rate
    active = tuple(max(0.0, finish - site.wait_h) if site.rate > 0 else 0.0 for site in sites)
    return Fill(finish, active, tuple(site.rate * hours for site, hours in zip(sites, active, strict=True)))


def wait_for_all(sites: Sequence[FluidSite], tokens: float) -> float:
    """Hours until the end if no site begins before the last one can."""
    return max(site.wait_h for site in sites) + tokens / sum(site.rate for site in sites)
