"""One campaign with the production coordinator, ledger, leases, rounds and merges, on the virtual clock.

Sites come and go as a chosen campaign's jobs did; each is a `SteadySite`. What comes out is when the last block was merged,
beside when the planner's simulation says it should be: the check that the simulation of rounds is not wishful.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from crosstrain.config import RunConfig
from crosstrain.coordinator.audit import audit
from crosstrain.domain.ids import Instant
from crosstrain.placement.offer import Demand
from crosstrain.simulation.campaign.realise import Realised
from crosstrain.simulation.nodes import CoordinatorNode
from crosstrain.simulation.scratch import quiet, scratch
from crosstrain.simulation.steady_site import BOOT_S, SteadySite, SteadyTraits
from crosstrain.simulation.world import START, World
from crosstrain.storage import run_store
from crosstrain.storage.database import Database, sqlite_engine
from crosstrain.storage.object_store import LocalObjectStore
from crosstrain.wire.messages import Fingerprint

WINDOWS = 8
"""Of a block."""
STEPS = 8
FEWEST_BLOCKS, MOST_BLOCKS = 200, 2000
PER_ROUND = 10
"""Blocks of a round, if that makes no more than `MOST_BLOCKS` in all."""
TICK_S = 15.0
LATE = 1.5
"""The run is given up when it takes this many times what was expected."""


@dataclass(frozen=True, slots=True)
class Played:
    """What came of it.

    Attributes:
        hours: until the last block was merged; infinite if it was not.
        expected_hours: by the simulation of rounds.
        blocks, generations: of the run.
        problems: of the audit with replay.
    """

    hours: float
    expected_hours: float
    blocks: int
    generations: int
    problems: tuple[str, ...]


def play_production(
    names: Sequence[str], speeds: Sequence[float], found: Realised, demand: Demand, seed: int
) -> Played:
    """Plays the jobs of a realised campaign.

    Args:
        names, speeds: of the sites, tokens per second.
    """
    rounds = max(1.0, demand.tokens / demand.round_tokens)
    blocks = max(FEWEST_BLOCKS, min(MOST_BLOCKS, round(PER_ROUND * rounds)))
    per_round = max(1.0, blocks / rounds)
    config, identity = _run(seed), _identity(seed, blocks)
    with scratch() as directory, quiet():
        world, engine = World(seed), sqlite_engine(None)
        coordinator = CoordinatorNode(world, config, identity, engine, directory / "coordinator", lambda: None)
        coordinator.tick_s = TICK_S
        coordinator.start()
        for name, speed, jobs in zip(names, speeds, found.jobs, strict=True):
            if not jobs:
                continue
            share = max(1, round(speed / sum(speeds) * per_round * WINDOWS / STEPS))
            traits = SteadyTraits(name, 1, share, speed * blocks / demand.tokens, 20.0)
            site = SteadySite(world, config, identity, traits, directory / name, coordinator, seed)
            for begin, end in jobs:
                if begin <= LATE * found.finish_s:
                    world.after(
                        1000 * max(0.0, begin - BOOT_S), partial(site.start, Instant(START + round(1000 * end)))
                    )
        try:
            world.run(lambda: _finished(coordinator), START + round(1000 * LATE * found.finish_s))
            database = Database(engine)
            with database.read() as connection:
                run, chain = run_store.load(connection), run_store.generations(connection)
            checked = audit(database, LocalObjectStore(directory / "coordinator" / "objects"), replay=True)
        finally:
            world.close()
        engine.dispose()
    ended = run["finished_at"] if run is not None else None
    hours = math.inf if ended is None else (ended - START) / 3_600_000
    return Played(hours, found.finish_s / 3600, blocks, len(chain) - 1, checked.problems)


def _finished(coordinator: CoordinatorNode) -> bool:
    service = coordinator.service
    if service is None:
        return False
    with service.database.read() as connection:
        return run_store.progress(connection)["finished_at"] is not None


def _run(seed: int) -> RunConfig:
    return RunConfig.model_validate(
        {
            "run": {"name": "campaign", "seed": seed, "rounds": 1_000_000, "epochs": 1, "preset": "paper"},
            "model": {"vocab_size": 8},
            "data": {"block_windows": WINDOWS},
            "inner": {"steps": STEPS, "engine": "counting"},
            "wire": {"weights": "fp32", "delta": "fp32"},
            "heldout": {"windows": 0},
            "lease": {"heartbeat_s": 60.0, "ttl_floor_s": 180.0},
        }
    )


def _identity(seed: int, blocks: int) -> Fingerprint:
    nothing = "0" * 64
    return Fingerprint(
        spec_digest=_run(seed).spec_digest(),
        seed=seed,
        windows=blocks * WINDOWS,
        block_windows=WINDOWS,
        seq_len=1,
        tokenizer_sha256=nothing,
        corpus_sha256=nothing,
    )
