"""What goes wrong, when: a schedule drawn from a seed before the run, so that it can be shrunk and told as a story."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import StrEnum

from crosstrain.simulation.network import Weather


class FaultKind(StrEnum):
    SITE_CRASH = "site-crash"
    SITE_CRASH_AT_STEP = "site-crash-at-step"
    SITE_FREEZE = "site-freeze"
    SITE_CUT_OFF = "site-cut-off"
    SITE_WALLTIME = "site-walltime"
    TRAINER_DEATH = "trainer-death"
    TRAINER_STUCK = "trainer-stuck"
    COORDINATOR_CRASH = "coordinator-crash"
    COORDINATOR_CRASH_AT_STEP = "coordinator-crash-at-step"
    COORDINATOR_STALL = "coordinator-stall"
    COORDINATOR_ZOMBIE = "coordinator-zombie"
    DISK_FULL = "disk-full"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        at_s: virtual seconds after the start.
        site: which site, for faults of sites.
        duration_s: until it is over: the restart, the end of the freeze, the line's repair.
        steps: for crashes at a durable step, how many more steps succeed; the crash is before the next one or, if odd,
            right after it.
    """

    at_s: float
    kind: FaultKind
    site: int = 0
    duration_s: float = 0.0
    steps: int = 0

    def sentence(self, names: tuple[str, ...]) -> str:
        who = names[self.site] if not self.kind.startswith(("coordinator", "disk")) else "the coordinator"
        what = {
            FaultKind.SITE_CRASH: f"{who} is killed, restarted {self.duration_s:.0f} s later",
            FaultKind.SITE_CRASH_AT_STEP: f"{who} is killed {_place(self.steps)}, restarted {self.duration_s:.0f} s later",
            FaultKind.SITE_FREEZE: f"{who} is frozen for {self.duration_s:.0f} s",
            FaultKind.SITE_CUT_OFF: f"{who} is cut off for {self.duration_s:.0f} s",
            FaultKind.SITE_WALLTIME: f"{who}'s job ends in {self.duration_s:.0f} s, the next begins later",
            FaultKind.TRAINER_DEATH: f"{who}'s trainer dies",
            FaultKind.TRAINER_STUCK: f"{who}'s trainer makes no progress for {self.duration_s:.0f} s",
            FaultKind.COORDINATOR_CRASH: f"{who} is killed, restarted {self.duration_s:.0f} s later",
            FaultKind.COORDINATOR_CRASH_AT_STEP: f"{who} is killed {_place(self.steps)}, "
            f"restarted {self.duration_s:.0f} s later",
            FaultKind.COORDINATOR_STALL: f"{who} stands still for {self.duration_s:.0f} s",
            FaultKind.COORDINATOR_ZOMBIE: f"{who} is replaced, but runs on for {self.duration_s:.0f} s",
            FaultKind.DISK_FULL: f"{who}'s disk is full for {self.duration_s:.0f} s",
        }
        return f"{self.at_s:7.1f} s  {what[self.kind]}"


def _place(steps: int) -> str:
    return f"{'after' if steps % 2 else 'before'} its durable step {steps // 2 + 1}"


@dataclass(frozen=True, slots=True)
class SiteTraits:
    """One simulated site.

    Attributes:
        step_s: how long an optimiser step takes.
        comes_at_s: when its first job starts.
    """

    name: str
    windows_per_step: int
    step_s: float
    comes_at_s: float
    weather: Weather


@dataclass(frozen=True, slots=True)
class Schedule:
    """Everything that a seed decides before the run begins."""

    seed: int
    windows: int
    block_windows: int
    inner_steps: int
    rounds: int
    epochs: int
    checkpoint_s: float
    cutoff_s: float
    start_sites: int
    sites: tuple[SiteTraits, ...]
    faults: tuple[Fault, ...]
    overlap: bool = False

    def without(self, index: int) -> Schedule:
        """The same without one fault."""
        return replace(self, faults=self.faults[:index] + self.faults[index + 1 :])

    def calm(self) -> Schedule:
        """The same on a network that does everything right."""
        sites = tuple(replace(site, weather=Weather(site.weather.rtt_ms)) for site in self.sites)
        return replace(self, sites=sites)


NAMES = ("alpha", "beta", "gamma", "delta", "epsilon")
RTTS_MS = (347.0, 70.0, 3.0)
"""Round trips of the published deployment (arXiv 2610.03457)."""


OVERLAP_SHARE = 0.4
"""Of all seeds, how many run with `round.overlap`."""


def draw_schedule(seed: int, hours: float) -> Schedule:
    """The schedule of a seed: one to four sites, a corpus of one to three epochs, and faults over `hours`."""
    rng = random.Random(f"schedule {seed}")
    horizon_s = 3600 * hours
    sites = tuple(_draw_site(rng, NAMES[i], horizon_s, i) for i in range(rng.choice((1, 2, 2, 3, 3, 4))))
    count = rng.choice((0, 1, 2, 3, 4, 6, 8))
    faults = sorted((_draw_fault(rng, len(sites), horizon_s) for _ in range(count)), key=lambda fault: fault.at_s)
    return Schedule(
        seed=seed,
        windows=rng.randrange(20, 160),
        block_windows=rng.choice((1, 2, 3, 4, 5, 8)),
        inner_steps=rng.choice((2, 3, 4, 6)),
        rounds=rng.choice((4, 6, 8, 12)),
        epochs=rng.choice((1, 1, 2, 3)),
        checkpoint_s=rng.choice((10.0, 25.0, 1000.0)),
        cutoff_s=rng.choice((60.0, 300.0, 300.0, 3000.0)),
        start_sites=rng.choice((1, 1, 1, 2)),
        sites=sites,
        faults=tuple(faults),
        # Drawn apart, so that the rest of a seed's schedule does not depend on it.
        overlap=random.Random(f"overlap {seed}").random() < OVERLAP_SHARE,
    )


def _draw_site(rng: random.Random, name: str, horizon_s: float, index: int) -> SiteTraits:
    bad = rng.choice((0.0, 0.0, 0.01, 0.05))
    weather = Weather(rng.choice(RTTS_MS), bad, bad, rng.choice((0.0, 0.02, 0.1)), rng.choice((0.0, 0.0, 0.1)))
    late = rng.choice((0.0, 0.0, 0.3)) * horizon_s if index else 0.0
    return SiteTraits(name, rng.choice((2, 3, 4, 8)), rng.choice((2.0, 5.0, 11.0)), late * rng.random(), weather)


_DURATIONS_S = {
    FaultKind.SITE_CRASH: (5, 120),
    FaultKind.SITE_CRASH_AT_STEP: (5, 120),
    FaultKind.SITE_FREEZE: (5, 200),
    FaultKind.SITE_CUT_OFF: (5, 200),
    FaultKind.SITE_WALLTIME: (10, 90),
    FaultKind.TRAINER_DEATH: (0, 1),
    FaultKind.TRAINER_STUCK: (60, 300),
    FaultKind.COORDINATOR_CRASH: (2, 120),
    FaultKind.COORDINATOR_CRASH_AT_STEP: (2, 60),
    FaultKind.COORDINATOR_STALL: (10, 150),
    FaultKind.COORDINATOR_ZOMBIE: (1, 150),
    FaultKind.DISK_FULL: (5, 60),
}


def _draw_fault(rng: random.Random, sites: int, horizon_s: float) -> Fault:
    kind = rng.choice(list(FaultKind))
    low, high = _DURATIONS_S[kind]
    return Fault(
        round(horizon_s * rng.random(), 1),
        kind,
        rng.randrange(sites),
        round(rng.uniform(low, high), 1),
        rng.randrange(24),
    )
