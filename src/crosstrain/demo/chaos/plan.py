"""What goes wrong and when: a pure function of the seed and of the options."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from crosstrain.demo.processes import COORDINATOR


class Kind(StrEnum):
    """What is done to a site, or to the coordinator."""

    KILL = "kill"
    KILL_AGENT = "kill-agent"
    KILL_TRAINER = "kill-trainer"
    STOP = "stop"
    STOP_TRAINER = "stop-trainer"
    DRAIN = "drain"
    CUT = "cut"
    SWALLOW = "swallow"
    RESET = "reset"
    KILL_COORDINATOR = "kill-coordinator"
    STOP_COORDINATOR = "stop-coordinator"


WEIGHTS = {
    Kind.KILL: 5,
    Kind.KILL_AGENT: 3,
    Kind.KILL_TRAINER: 2,
    Kind.STOP: 4,
    Kind.STOP_TRAINER: 1,
    Kind.DRAIN: 2,
    Kind.CUT: 3,
    Kind.SWALLOW: 3,
    Kind.RESET: 2,
    Kind.KILL_COORDINATOR: 4,
    Kind.STOP_COORDINATOR: 2,
}
"""How often each is drawn, in proportion."""
STOPS = frozenset({Kind.STOP, Kind.STOP_TRAINER, Kind.STOP_COORDINATOR})
OF_THE_COORDINATOR = frozenset({Kind.KILL_COORDINATOR, Kind.STOP_COORDINATOR})


@dataclass(frozen=True, slots=True)
class Tempo:
    """How fast things happen, in seconds; it depends on what trains.

    Attributes:
        ttl: of a lease.
        boot: before the first fault, and between two faults of one process.
        gap: between two faults on the average.
    """

    ttl: float
    boot: float
    gap: float


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        target: a site's name, or `COORDINATOR`.
        seconds: until it is undone: restarted, continued, healed. 0: nothing is to be undone.
    """

    at_s: float
    kind: Kind
    target: str
    seconds: float

    @property
    def ends_s(self) -> float:
        return self.at_s + self.seconds

    @property
    def sentence(self) -> str:
        who = "the coordinator" if self.target == COORDINATOR else self.target
        after = f"{self.seconds:.1f} s later"
        return {
            Kind.KILL: f"{who} is killed, agent and trainer, and started again {after}",
            Kind.KILL_AGENT: f"{who}'s agent is killed, and started again {after}",
            Kind.KILL_TRAINER: f"{who}'s trainer is killed",
            Kind.STOP: f"{who} stands still, and goes on {after}",
            Kind.STOP_TRAINER: f"{who}'s trainer stands still, and goes on {after}",
            Kind.DRAIN: f"{who} is asked to drain, and started again {after}",
            Kind.CUT: f"{who} is cut off for {self.seconds:.1f} s",
            Kind.SWALLOW: f"{who}'s line swallows everything, and delivers it {after}",
            Kind.RESET: f"{who}'s connections are reset",
            Kind.KILL_COORDINATOR: f"{who} is killed, and started again {after}",
            Kind.STOP_COORDINATOR: f"{who} stands still, and goes on {after}",
        }[self.kind]


def draw_plan(seed: int, sites: Sequence[str], seconds: float, tempo: Tempo) -> tuple[Fault, ...]:
    """The faults of a seed, in the order of their times; all are undone before `seconds` are over.

    Faults of different processes overlap as they like; those of one process are `tempo.boot` apart.
    """
    rng = random.Random(f"chaos {seed}")
    faults: list[Fault] = []
    at, free = tempo.boot, dict.fromkeys((*sites, COORDINATOR), 0.0)
    while at < seconds:
        (kind,) = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
        site = rng.choice(list(sites))
        target = COORDINATOR if kind in OF_THE_COORDINATOR else site
        fault = Fault(round(at, 1), kind, target, round(_duration(rng, kind, tempo), 1))
        if free[target] <= at and fault.ends_s < seconds:
            faults.append(fault)
            free[target] = fault.ends_s + tempo.boot
        at += rng.uniform(0.2, 1.8) * tempo.gap
    return tuple(faults)


def _duration(rng: random.Random, kind: Kind, tempo: Tempo) -> float:
    if kind in (Kind.RESET, Kind.KILL_TRAINER):
        return 0.0
    # Mostly longer than a lease lives, sometimes shorter, so that both sides of the deadline are met.
    longest = 2.0 if kind in STOPS else 1.6
    return rng.uniform(1.1 if kind in STOPS else 0.1, longest) * tempo.ttl
