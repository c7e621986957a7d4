"""The setting of arXiv 2610.03457, Table 3, on the virtual clock, with the production ledger, leases, rounds and merges.

Published are the corpus (2,692 blocks of 1,024 windows), three sites with rates of 5.5 : 3.0 : 1.0 and round trips of 347, 70 and
3 ms, four departures, and 23.8 hours. Not published, and chosen here: how much the sites could train together, the length of a
phase, the sites' ranks, and when each departure was and how long. So the setting is reproduced, and the numbers are not.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crosstrain.config import RunConfig
from crosstrain.coordinator.audit import audit
from crosstrain.coordinator.ledger_report import LedgerReport, ledger_report
from crosstrain.simulation.nodes import CoordinatorNode
from crosstrain.simulation.scratch import quiet, scratch
from crosstrain.simulation.steady_site import SteadySite, SteadyTraits
from crosstrain.simulation.world import START, World
from crosstrain.storage.database import Database, sqlite_engine
from crosstrain.storage.object_store import LocalObjectStore
from crosstrain.wire.messages import Fingerprint

BLOCK_WINDOWS = 1024
DEPARTURES = 4


@dataclass(frozen=True, slots=True)
class Setting:
    """A corpus and a time; the one published, or a small one of the same proportions for tests."""

    blocks: int = 2692
    seconds: int = round(23.8 * 3600)


PUBLISHED = {"granted": 2070, "merged": 2045, "lost": 25, "expiries": 4}
"""What the paper reports of its deployment."""

CAPACITY = 2250 / 2692
"""Fraction of the corpus that the three sites could train in the time if they never stopped."""
SHARES = {"far": 5.5, "middle": 3.0, "near": 1.0}
RTT_MS = {"far": 347.0, "middle": 70.0, "near": 3.0}
RANKS = {"far": 44, "middle": 24, "near": 8}
WINDOWS_PER_STEP = {"far": 88, "middle": 48, "near": 16}
TICK_S = 15.0
STEPS = 192
"""H: a full phase is 17, 9 and 3 blocks, about 18 minutes at each site."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A site's job is killed, and its next one starts after a while.

    Attributes:
        at_s: seconds after the start.
        away_s: until the next job.
    """

    site: str
    at_s: float
    away_s: float


@dataclass(frozen=True, slots=True)
class StaticSplit:
    """What sites would have covered that own a fixed part of the corpus each.

    Attributes:
        blocks: site -> blocks of its own.
        covered: site -> how many of them it trains in the time, min(blocks, what it merged with leases).
        hours: until the slowest site has trained its part.
    """

    blocks: Mapping[str, int]
    covered: Mapping[str, int]
    hours: float

    @property
    def total(self) -> int:
        return sum(self.covered.values())


@dataclass(frozen=True, slots=True)
class Table3:
    """What came of it.

    Attributes:
        leased_hours: until the whole corpus is merged, at the pace of the time simulated.
    """

    seed: int
    setting: Setting
    departures: tuple[Departure, ...]
    ledger: LedgerReport
    audit_problems: tuple[str, ...]
    equal: StaticSplit
    proportional: StaticSplit
    leased_hours: float


def reproduce(seed: int, setting: Setting) -> Table3:
    """Plays it to the end of the time. The same seed has the same outcome."""
    plan = draw_departures(seed, setting.seconds)
    with scratch() as directory, quiet():
        world, engine = World(seed), sqlite_engine(None)
        config, identity = run_config(seed), fingerprint(seed, setting)
        coordinator = CoordinatorNode(world, config, identity, engine, directory / "coordinator", lambda: None)
        sites = {
            name: SteadySite(world, config, identity, traits(name, setting), directory / name, coordinator, seed)
            for name in SHARES
        }
        coordinator.tick_s = TICK_S
        coordinator.start()
        for site in sites.values():
            world.after(0, site.start)
        for departure in plan:
            world.after(1000 * departure.at_s, sites[departure.site].kill)
            world.after(1000 * (departure.at_s + departure.away_s), sites[departure.site].start)
        try:
            world.run(lambda: False, START + 1000 * setting.seconds)
            database = Database(engine)
            report = ledger_report(database)
            checked = audit(database, LocalObjectStore(directory / "coordinator" / "objects"), replay=True)
        finally:
            world.close()
        engine.dispose()
    merged = {site.name: site.merged_blocks for site in report.sites}
    return Table3(
        seed,
        setting,
        plan,
        report,
        checked.problems,
        static_split(equal_parts(setting.blocks), merged, setting.seconds),
        static_split(proportional_parts(setting.blocks), merged, setting.seconds),
        setting.seconds / 3600 * setting.blocks / max(1, sum(merged.values())),
    )


def draw_departures(seed: int, seconds: int) -> tuple[Departure, ...]:
    """Four, each in a quarter of the time of its own; of half an hour to three hours in 23.8."""
    rng = random.Random(f"departures {seed}")
    quarter = seconds / DEPARTURES
    return tuple(
        Departure(
            rng.choice(list(SHARES)),
            round(quarter * (number + rng.uniform(0.1, 0.4))),
            round(seconds * rng.uniform(0.5, 3.0) / 23.8),
        )
        for number in range(DEPARTURES)
    )


def static_split(parts: Mapping[str, int], merged: Mapping[str, int], seconds: int) -> StaticSplit:
    """A fixed split, at the pace that each site really had: rounds, transfers, departures and lost phases are in it.

    covered = sum over sites of min(part, merged): who is through with its part has nothing to do, who is slow or away keeps its
    part to itself. hours = the largest of part / pace, for all of the corpus is covered only when the last site is through.
    """
    covered = {site: min(part, merged[site]) for site, part in parts.items()}
    hours = max(seconds / 3600 * part / max(1, merged[site]) for site, part in parts.items())
    return StaticSplit(parts, covered, hours)


def equal_parts(blocks: int) -> dict[str, int]:
    """A third each."""
    return _parts(blocks, [1.0] * len(SHARES))


def proportional_parts(blocks: int) -> dict[str, int]:
    """In proportion to the sites' rates, as if they had been known before."""
    return _parts(blocks, list(SHARES.values()))


def _parts(blocks: int, weights: Sequence[float]) -> dict[str, int]:
    ends = [round(blocks * sum(weights[: end + 1]) / sum(weights)) for end in range(len(weights))]
    return {name: end - start for name, start, end in zip(SHARES, [0, *ends], ends, strict=False)}


def traits(name: str, setting: Setting) -> SteadyTraits:
    rate = CAPACITY * setting.blocks / setting.seconds * SHARES[name] / sum(SHARES.values())
    return SteadyTraits(name, RANKS[name], WINDOWS_PER_STEP[name], rate, RTT_MS[name])


def run_config(seed: int) -> RunConfig:
    """The run file."""
    return RunConfig.model_validate(
        {
            "run": {"name": "darl-table3", "seed": seed, "rounds": 10_000, "epochs": 1, "preset": "paper"},
            "model": {"vocab_size": 8},
            "data": {"block_windows": BLOCK_WINDOWS},
            "inner": {"steps": STEPS, "engine": "counting"},
            "wire": {"weights": "fp32", "delta": "fp32"},
            "heldout": {"windows": 0},
            "lease": {"heartbeat_s": 60.0, "ttl_floor_s": 180.0},
        }
    )


def fingerprint(seed: int, setting: Setting) -> Fingerprint:
    nothing = "0" * 64
    return Fingerprint(
        spec_digest=run_config(seed).spec_digest(),
        seed=seed,
        windows=setting.blocks * BLOCK_WINDOWS,
        block_windows=BLOCK_WINDOWS,
        seq_len=1,
        tokenizer_sha256=nothing,
        corpus_sha256=nothing,
    )
