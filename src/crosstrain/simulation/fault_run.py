"""One simulated run of a schedule: faults for a while, then good weather until the run is finished, then the audit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crosstrain.config import RunConfig
from crosstrain.coordinator.audit import audit
from crosstrain.domain.block import Corpus
from crosstrain.domain.ids import Instant
from crosstrain.errors import CrosstrainError
from crosstrain.simulation.faults import Fault, FaultKind, Schedule
from crosstrain.simulation.nodes import CoordinatorNode, SiteNode
from crosstrain.simulation.oracle import Oracle, Violation, ViolationFoundError
from crosstrain.simulation.scratch import quiet, scratch
from crosstrain.simulation.trainer import Exports
from crosstrain.simulation.world import START, ActorFailedError, World
from crosstrain.storage import run_store
from crosstrain.storage.database import Database, sqlite_engine
from crosstrain.storage.object_store import LocalObjectStore
from crosstrain.wire.messages import Fingerprint

PATIENCE_S = (150.0, 160.0)
CALM_S = 2 * 3600
"""Virtual seconds after the last fault in which every run must finish."""
NO_DIGEST = "0" * 64
CODECS = ("int8", "bf16", "int4", "fp32")
COMPRESS = ("none", "planes")
"""Of the deltas, in turn by seed; every codec has either."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a schedule."""

    events: int
    faults: int
    generations: int
    violation: Violation | None


def run_schedule(schedule: Schedule) -> Outcome:
    """Runs a schedule to its end or to the first violation. The same schedule has the same outcome."""
    with scratch() as directory, quiet():
        run = _Run(schedule, directory)
        try:
            violation = run.play()
        finally:
            run.world.close()
        return Outcome(run.world.events, len(schedule.faults), run.generations(), violation)


class _Run:
    def __init__(self, schedule: Schedule, directory: Path) -> None:
        self._schedule = schedule
        self.world = World(schedule.seed)
        self._engine = sqlite_engine(None)
        self._database = Database(self._engine)
        self._objects = directory / "coordinator" / "objects"
        exports, config, identity = Exports(), run_config(schedule), fingerprint(schedule)
        self.coordinator = CoordinatorNode(
            self.world, config, identity, self._engine, directory / "coordinator", self._committed
        )
        corpus = Corpus(schedule.windows, schedule.block_windows)
        patience = (round(1000 * PATIENCE_S[0]), round(1000 * PATIENCE_S[1]))
        floor = round(1000 * config.lease.ttl_floor_s)
        self.oracle = Oracle(
            self.world, self._database, self.coordinator, exports, corpus, schedule.seed, patience, floor
        )
        self.sites = [
            SiteNode(
                self.world, config, identity, traits, directory / traits.name, self.coordinator, exports, schedule.seed
            )
            for traits in schedule.sites
        ]

    def _committed(self) -> None:
        self.oracle.committed()

    def play(self) -> Violation | None:
        self.world.after_event = self.oracle.check
        self.coordinator.start()
        for node, traits in zip(self.sites, self._schedule.sites, strict=True):
            self.world.after(1000 * traits.comes_at_s, node.start)
        for fault in self._schedule.faults:
            self.world.after(1000 * fault.at_s, lambda fault=fault: self._inflict(fault))  # type: ignore[misc]
        last = max((fault.at_s + fault.duration_s for fault in self._schedule.faults), default=0.0)
        limit = START + round(1000 * (last + CALM_S))
        try:
            finished = self.world.run(self._finished, limit)
        except ViolationFoundError as error:
            return error.violation
        except ActorFailedError as error:
            return Violation("crash", str(error))
        if not finished:
            return Violation("liveness", f"the run did not finish: {self._waiting()}")
        self.world.after_event = lambda: None
        return self._audit()

    def generations(self) -> int:
        with self._database.read() as connection:
            return len(run_store.generations(connection))

    def _finished(self) -> bool:
        return self.oracle.finished

    def _waiting(self) -> str:
        service = self.coordinator.service
        gave_up = [f"{node.name} gave up: {node.gave_up}" for node in self.sites if node.gave_up is not None]
        return "; ".join([service.barrier.reason if service else "no coordinator", *gave_up])

    def _audit(self) -> Violation | None:
        try:
            found = audit(self._database, LocalObjectStore(self._objects), replay=True, scratch=self._objects.parent)
        except CrosstrainError as error:
            return Violation("audit", str(error))
        return None if found.ok else Violation("audit", found.problems[0])

    def _inflict(self, fault: Fault) -> None:
        node = self.sites[fault.site]
        ms, now = round(1000 * fault.duration_s), self.world.now()
        match fault.kind:
            case FaultKind.SITE_CRASH:
                node.crash(ms)
            case FaultKind.SITE_CRASH_AT_STEP:
                node.restart_after_ms = ms
                node.steps.crash_after(fault.steps)
            case FaultKind.SITE_FREEZE:
                node.freeze(ms)
            case FaultKind.SITE_CUT_OFF:
                node.cut_off(ms)
            case FaultKind.SITE_WALLTIME:
                node.end_soon(fault.duration_s)
            case FaultKind.TRAINER_DEATH if node.link is not None:
                node.link.die()
            case FaultKind.TRAINER_STUCK if node.link is not None:
                node.link.stuck_until = Instant(now + ms)
            case FaultKind.COORDINATOR_CRASH:
                self.coordinator.crash(ms)
            case FaultKind.COORDINATOR_CRASH_AT_STEP:
                self.coordinator.restart_after_ms = ms
                self.coordinator.steps.crash_after(fault.steps)
            case FaultKind.COORDINATOR_STALL:
                self.coordinator.stalled_until = Instant(max(self.coordinator.stalled_until, now + ms))
                self.oracle.stalls.append((now, self.coordinator.stalled_until))
            case FaultKind.COORDINATOR_ZOMBIE:
                self.coordinator.replace(ms)
            case FaultKind.DISK_FULL:
                self.coordinator.full_until = Instant(now + ms)


def run_config(schedule: Schedule) -> RunConfig:
    """The run file of a schedule."""
    sites = {
        traits.name: {"micro_batch": traits.windows_per_step, "checkpoint_s": schedule.checkpoint_s, "margin_s": 5.0}
        for traits in schedule.sites
    }
    return RunConfig.model_validate(
        {
            "run": {
                "name": f"seed-{schedule.seed}",
                "seed": schedule.seed,
                "rounds": schedule.rounds,
                "epochs": schedule.epochs,
            },
            "model": {"vocab_size": 8},
            "data": {"block_windows": schedule.block_windows},
            "inner": {"steps": schedule.inner_steps, "engine": "counting", "lr": 0.01},
            "round": {
                "cutoff_s": schedule.cutoff_s,
                "drain_s": 20.0,
                "start_when_sites": schedule.start_sites,
                "start_after_s": 120.0,
                "overlap": schedule.overlap,
            },
            "wire": _wire(schedule.seed),
            "heldout": {"windows": 4},
            "lease": {
                "heartbeat_s": 20.0,
                "ttl_floor_s": 60.0,
                "boot_patience_s": PATIENCE_S[0],
                "phase_patience_s": PATIENCE_S[1],
                "join_patience_s": 60.0,
            },
            "sites": sites,
        }
    )


def _wire(seed: int) -> dict[str, str]:
    turn, codec = divmod(seed, len(CODECS))
    return {"delta": CODECS[codec], "compress": COMPRESS[turn % len(COMPRESS)]}


def fingerprint(schedule: Schedule) -> Fingerprint:
    return Fingerprint(
        spec_digest=run_config(schedule).spec_digest(),
        seed=schedule.seed,
        windows=schedule.windows,
        block_windows=schedule.block_windows,
        seq_len=4,
        tokenizer_sha256=NO_DIGEST,
        corpus_sha256=NO_DIGEST,
    )
