"""Which eta and beta a round gets: presets, what RUN.toml overrides, the ramp and the solo round.

| preset | eta | beta | solo_eta | solo_beta | ramp | why |
|---|---|---|---|---|---|---|
| paper | .7 | .9 | 1 | .9 | 0 | arXiv 2610.03457, unchanged |
| tuned, AdamW inside | .7 | .9 | 1 | 0 | .78 | beta of .9 from round 0 costs 60 % perplexity at 3 sites, ramped 20 % |
| tuned, Muon inside | .7 | .5 | 1 | 0 | 0 | 3 sites end 18-21 % behind centralised Muon |
| fedavg | 1 | 0 | 1 | 0 | 0 | plain averaging |

The percentages are perplexity gaps to centralised training of a 164 k parameter model, H = 25: directions, not promises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from crosstrain.config import OuterSection
from crosstrain.outer.outer_optimizer import OuterHyperparameters

Preset = Literal["paper", "tuned", "fedavg"]
InnerOptimizer = Literal["adamw", "muon"]


@dataclass(frozen=True)
class OuterRule:
    """The resolved rule of a run.

    Attributes:
        eta: outer learning rate of a round with two or more contributions.
        beta: outer momentum of such a round, at the end of the ramp.
        solo_eta: eta of a round with one contribution.
        solo_beta: beta of such a round; not ramped. 0 makes the round plain training and restarts the momentum at its
            delta.
        ramp: beta grows linearly from 0 over this fraction of the planned inner steps; 0 means constant.
    """

    eta: float
    beta: float
    solo_eta: float
    solo_beta: float
    ramp: float


_PAPER = OuterRule(eta=0.7, beta=0.9, solo_eta=1.0, solo_beta=0.9, ramp=0.0)
_TUNED_ADAMW = OuterRule(eta=0.7, beta=0.9, solo_eta=1.0, solo_beta=0.0, ramp=0.78)
_TUNED_MUON = OuterRule(eta=0.7, beta=0.5, solo_eta=1.0, solo_beta=0.0, ramp=0.0)
_FEDAVG = OuterRule(eta=1.0, beta=0.0, solo_eta=1.0, solo_beta=0.0, ramp=0.0)

PRESETS: dict[tuple[Preset, InnerOptimizer], OuterRule] = {
    ("paper", "adamw"): _PAPER,
    ("paper", "muon"): _PAPER,
    ("tuned", "adamw"): _TUNED_ADAMW,
    ("tuned", "muon"): _TUNED_MUON,
    ("fedavg", "adamw"): _FEDAVG,
    ("fedavg", "muon"): _FEDAVG,
}


def outer_rule(section: OuterSection, preset: Preset, optimizer: InnerOptimizer) -> OuterRule:
    """The preset's values, under those that `[outer]` of RUN.toml sets itself."""

    def chosen(explicit: float | None, default: float) -> float:
        return default if explicit is None else explicit

    base = PRESETS[preset, optimizer]
    return OuterRule(
        eta=chosen(section.eta, base.eta),
        beta=chosen(section.beta, base.beta),
        solo_eta=chosen(section.solo_eta, base.solo_eta),
        solo_beta=chosen(section.solo_beta, base.solo_beta),
        ramp=chosen(section.ramp, base.ramp),
    )


def hyperparameters(rule: OuterRule, global_step: int, total_steps: int, contributions: int) -> OuterHyperparameters:
    """eta and beta of the outer step that makes the next generation.

    Args:
        global_step: inner steps behind the base generation; 0 at generation 0.
        total_steps: planned inner steps of the run, >= 1.
        contributions: how many are merged.

    Raises:
        ValueError: no contribution. Such a round has no outer step.
    """
    if contributions < 1:
        raise ValueError("expected at least one contribution: an empty round leaves weights and momentum untouched")
    if contributions == 1:
        return OuterHyperparameters(rule.solo_eta, rule.solo_beta)
    ramp_steps = rule.ramp * total_steps
    grown = 1.0 if global_step >= ramp_steps else global_step / ramp_steps
    return OuterHyperparameters(rule.eta, rule.beta * grown)
