"""What every operation of the coordinator works with, and what it keeps in memory only.

The database holds all that must survive. Presence (who is alive, what it is doing) does not: after a restart every live
lease gets a full TTL of grace, and the sites' next heartbeats rebuild it (G8).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from crosstrain.clock import Clock
from crosstrain.config import RunConfig
from crosstrain.domain.block import Corpus
from crosstrain.domain.ids import Digest, Generation, Instant, SessionId, SiteName, Token
from crosstrain.domain.lease import Pace
from crosstrain.domain.outer_round import BarrierRules
from crosstrain.domain.room import BYTES_PER_PARAMETER, may_begin, round_bytes, round_inodes
from crosstrain.domain.site import Patience, Presence
from crosstrain.domain.timeouts import silence_ms
from crosstrain.domain.verdict import Verdict
from crosstrain.outer.presets import OuterRule
from crosstrain.storage.database import Database
from crosstrain.storage.deltas import Deltas
from crosstrain.storage.durable import HEADROOM
from crosstrain.storage.object_store import ObjectStore
from crosstrain.wire.messages import Fingerprint

if TYPE_CHECKING:
    from fastapi import FastAPI


@dataclass(slots=True)
class Presences:
    """Live sessions by number; guarded by `lock` because requests run in threads.

    Attributes:
        deadlines: when each live lease lapses.
        evaluators: which session takes the held-out measure of a generation.
        adopting: weights that sessions were told to fetch and have not come back from.
        shedding: leases whose holder is asked to shed a part, and for whom.
        initialiser: which session makes generation 0.
        first_came_at: when the first site registered since the coordinator started.
    """

    lock: threading.RLock = field(default_factory=threading.RLock)
    sessions: dict[SessionId, Presence] = field(default_factory=dict)
    deadlines: dict[Token, Instant] = field(default_factory=dict)
    evaluators: dict[Generation, SessionId] = field(default_factory=dict)
    adopting: dict[SessionId, Digest] = field(default_factory=dict)
    shedding: dict[Token, SiteName] = field(default_factory=dict)
    initialiser: SessionId | None = None
    first_came_at: Instant | None = None


@dataclass(slots=True)
class Service:
    """The coordinator's parts, put together by `assembly`.

    Attributes:
        deltas: those in `objects`, with scratch files in `work`.
        work: directory for files that are being made, on the object store's file system.
        started_at: when this process took the run over.
        wake: set by whatever may let the round close, so that the loop looks at once.
        barrier: the newest verdict on the open round, for replies and status.
        pace: the newest look at the round's pace; written inside write transactions alone, which exclude each other.
        weights_bytes: of every generation's weights as sites adopt them; None until the store was asked.
        rules, patience: of `config`, which every heartbeat asks for.
        extensions: add other services' routes to the application.
    """

    config: RunConfig
    clock: Clock
    database: Database
    objects: ObjectStore
    deltas: Deltas
    work: Path
    corpus: Corpus
    seq_len: int
    fingerprint: Fingerprint
    outer: OuterRule
    started_at: Instant
    presences: Presences = field(default_factory=Presences)
    wake: threading.Event = field(default_factory=threading.Event)
    barrier: Verdict = field(default_factory=lambda: Verdict(False, "starting"))
    pace: Pace | None = None
    weights_bytes: int | None = None
    extensions: tuple[Callable[[FastAPI, Service], None], ...] = ()
    rules: BarrierRules = field(init=False)
    patience: Patience = field(init=False)

    def __post_init__(self) -> None:
        lease, section = self.config.lease, self.config.round
        self.rules = BarrierRules(
            _ms(section.cutoff_s),
            _ms(section.drain_s),
            _ms(lease.join_patience_s),
            section.start_when_sites,
            _ms(section.start_after_s),
        )
        self.patience = Patience(_ms(lease.boot_patience_s), _ms(lease.phase_patience_s))

    def weigh(self, weights: Digest) -> None:
        """Asks the store how large a generation is, for `room`; not inside transactions.

        Raises:
            IntegrityError: the blob is not there.
            EnvironmentFault: the store does not answer.
        """
        if self.weights_bytes is None:
            self.weights_bytes = self.objects.size(weights)

    def room(self, weights: Digest) -> Verdict:
        """Whether the store has room for a round that starts from `weights`, and for the ledger to grow beside it. Asks no
        service, so that a transaction may be around it."""
        if self.weights_bytes is None and self.objects.knows(weights):
            self.weigh(weights)
        if self.weights_bytes is None:
            return Verdict(False, "waiting for the object store, which has not answered yet")
        wire = self.config.wire
        parameters = self.weights_bytes / BYTES_PER_PARAMETER[wire.weights]
        sites = max(1, len(self.config.sites), len(self.presences.sessions))
        need = round_bytes(parameters, wire.weights, wire.delta, sites, wire.compress == "planes") + HEADROOM
        return may_begin(self.objects.room(), need, round_inodes(sites))

    @property
    def silence_ms(self) -> int:
        """Whoever was not heard of for so long is gone."""
        return silence_ms(self.heartbeat_ms, self.ttl_floor_ms)

    @property
    def heartbeat_ms(self) -> int:
        return _ms(self.config.lease.heartbeat_s)

    @property
    def ttl_floor_ms(self) -> int:
        return _ms(self.config.lease.ttl_floor_s)


def _ms(seconds: float) -> int:
    return round(1000 * seconds)
