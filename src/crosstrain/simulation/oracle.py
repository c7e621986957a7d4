"""The invariants, checked after every event against what really happened in the simulation and not against what the
coordinator believes. Each names the guarantee it holds (docs/guarantees.md).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from crosstrain.coordinator.tick import STALL_FACTOR
from crosstrain.domain.block import Corpus
from crosstrain.domain.events import EventKind
from crosstrain.domain.ids import Digest, Instant
from crosstrain.domain.lease import LeaseState
from crosstrain.domain.ledger import partition_problem
from crosstrain.domain.permutation import epoch_order
from crosstrain.domain.phase import window_numbers
from crosstrain.domain.plural import counted
from crosstrain.simulation.nodes import CoordinatorNode
from crosstrain.simulation.trainer import Exports
from crosstrain.simulation.world import World
from crosstrain.storage import lease_store, ledger_store, run_store, site_store
from crosstrain.storage.database import Database


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken guarantee."""

    guarantee: str
    what: str


class ViolationFoundError(Exception):
    """Ends the run at the first violation."""

    def __init__(self, guarantee: str, what: str) -> None:
        super().__init__(f"{guarantee}: {what}")
        self.violation = Violation(guarantee, what)


class Oracle:
    """Watches one simulated run.

    Args:
        patience_ms: (booting, other) as of the run's lease section.
    """

    def __init__(
        self,
        world: World,
        database: Database,
        coordinator: CoordinatorNode,
        exports: Exports,
        corpus: Corpus,
        seed: int,
        patience_ms: tuple[int, int],
        ttl_floor_ms: int,
    ) -> None:
        self._world = world
        self._database = database
        self._coordinator = coordinator
        self._exports = exports
        self._corpus = corpus
        self._seed = seed
        self._patience_ms = patience_ms
        self._ttl_floor_ms = ttl_floor_ms
        self._orders: dict[int, Any] = {}
        self._dirty = False
        self._seen = 0
        self._generations = 0
        self._merged: dict[int, Counter[int]] = defaultdict(Counter)
        self.stalls: list[tuple[Instant, Instant]] = []
        self.finished = False

    def committed(self) -> None:
        self._dirty = True

    def check(self) -> None:
        """Raises ViolationFoundError at the first broken guarantee."""
        self._check_waits()
        if not self._dirty:
            return
        self._dirty = False
        with self._database.read() as connection:
            self._check_partition(connection)
            for event in run_store.events(connection, self._seen):
                self._seen = event["seq"]
                self._check_event(connection, event)
            self._check_ahead(connection)
            self._check_generations(connection)

    def _check_ahead(self, connection: Connection) -> None:
        """G4: a lease ahead of its generation is of a session whose work for the open round counts, or may still."""
        newest = run_store.newest_generation(connection)
        for lease in lease_store.in_state(connection, LeaseState.LIVE):
            if newest is None or lease.generation <= newest.number:
                continue
            good = (LeaseState.LIVE.value, LeaseState.CONTRIBUTED.value, LeaseState.MERGED.value)
            before = [
                row["token"]
                for row in lease_store.all_leases(connection)
                if (row["session"], row["generation"]) == (lease.session, newest.number) and row["state"] in good
            ]
            if lease.generation != newest.number + 1 or not before:
                raise ViolationFoundError(
                    "G4", f"lease {lease.token} is ahead of generation {newest.number}, without one before it"
                )

    def _check_waits(self) -> None:
        """G6: whoever waits can say for what."""
        service = self._coordinator.service
        if service is not None and not service.barrier.reason:
            raise ViolationFoundError("G6", "the round waits without a reason")

    def _check_partition(self, connection: Connection) -> None:
        """G1: every block of every opened epoch is in exactly one state."""
        by_epoch = defaultdict(list)
        for span in ledger_store.all_spans(connection):
            by_epoch[span.epoch].append(span)
        for spans in by_epoch.values():
            problem = partition_problem(spans, self._corpus.blocks)
            if problem:
                raise ViolationFoundError("G1", problem)
        live = {lease.token for lease in lease_store.in_state(connection, LeaseState.LIVE)}
        for spans in by_epoch.values():
            for span in spans:
                if span.state.value == "leased" and span.token not in live:
                    raise ViolationFoundError(
                        "G1", f"positions {span.start} .. {span.stop} are leased by no live lease"
                    )

    def _check_event(self, connection: Connection, event: Mapping[Any, Any]) -> None:
        match EventKind(event["kind"]):
            case EventKind.MERGED:
                self._check_merge(event)
            case EventKind.EXPIRED:
                self._check_expiry(connection, event)
            case EventKind.CONTRIBUTED:
                self._check_fence(connection, event)
            case EventKind.EPOCH_OPENED:
                self._check_epochs(connection)
            case EventKind.FINISHED:
                self.finished = True

    def _check_merge(self, event: Mapping[Any, Any]) -> None:
        """G2: no window goes into the model twice in an epoch."""
        merged = self._merged[event["epoch"]]
        merged.update(self._windows(event["epoch"], event["start"], event["stop"]))
        twice = [window for window, count in merged.items() if count > 1]
        if twice:
            raise ViolationFoundError("G2", f"windows {twice[:5]} were merged twice in epoch {event['epoch']}")

    def _check_epochs(self, connection: Connection) -> None:
        """G2: an epoch ends when every window of it is in the model, not before."""
        run = run_store.load(connection)
        assert run is not None
        for epoch in range(int(run["epoch"])):
            missing = self._corpus.windows - len(self._merged[epoch])
            if missing:
                raise ViolationFoundError(
                    "G2", f"epoch {epoch} ended with {counted(missing, 'window')} not in the model"
                )

    def _check_fence(self, connection: Connection, event: Mapping[Any, Any]) -> None:
        """G3: only the newest session of a site contributes."""
        newest = max(
            (row["id"] for row in site_store.open_sessions(connection) if row["site"] == event["site"]), default=-1
        )
        if newest > event["session"]:
            raise ViolationFoundError(
                "G3", f"session {event['session']} of {event['site']} contributed after session {newest} took over"
            )

    def _check_expiry(self, connection: Connection, event: Mapping[Any, Any]) -> None:
        """G8: silence is counted by the coordinator's clock alone, and never while it was away itself.

        After an absence of half the TTL floor a lease has a full TTL; a shorter one does not count, to within one look of
        the loop.
        """
        row = {lease["token"]: lease for lease in lease_store.all_leases(connection)}[event["token"]]
        heard = self._coordinator.heard.get(event["token"])
        long_ms = STALL_FACTOR * self._ttl_floor_ms
        back = max((end for begin, end in self.stalls if end - begin > long_ms), default=0)
        silent_since = max(row["granted_at"], heard[0] if heard else 0, self._coordinator.started_at, back)
        idle_since = max(row["granted_at"], heard[1] if heard else 0)
        away = sum(max(0, min(end, event["at"]) - max(begin, silent_since)) for begin, end in self.stalls)
        silent, idle = event["at"] - silent_since - away, event["at"] - idle_since
        booting = heard is not None and heard[2][0] == "booting"
        patience = self._patience_ms[0] if booting else self._patience_ms[1]
        look_ms = round(1000 * self._coordinator.tick_s) if away else 0
        if silent + look_ms < row["ttl_ms"] and idle < max(row["ttl_ms"], patience):
            raise ViolationFoundError(
                "G8", f"lease {event['token']} expired after {silent} ms of silence, its TTL is {row['ttl_ms']} ms"
            )

    def _check_generations(self, connection: Connection) -> None:
        """G2 and G4: the chain steps by one, and each generation holds exactly the training of the blocks it commits."""
        chain = run_store.generations(connection)
        for record in chain[self._generations :]:
            if record.number != self._generations:
                raise ViolationFoundError("G4", f"generation {record.number} follows {self._generations - 1}")
            if record.number and not record.contributions:
                raise ViolationFoundError("G5", f"generation {record.number} was made from nothing")
            self._generations += 1
            if record.number:
                self._check_content(connection, record.number)

    def _check_content(self, connection: Connection, number: int) -> None:
        spans = defaultdict(list)
        for event in run_store.events(connection):
            if event["kind"] == EventKind.MERGED.value and event["generation"] == number:
                spans[event["token"]].append((event["epoch"], event["start"], event["stop"]))
        rows = [row for row in lease_store.all_contributions(connection) if row["generation"] == number - 1]
        for row in rows:
            if not row["accepted"]:
                continue
            committed = Counter(window for span in spans[row["token"]] for window in self._windows(*span))
            trained = Counter(self._exports.windows.get(Digest(row["delta"]), ()))
            if committed != trained:
                differing = sorted((committed - trained) + (trained - committed))
                raise ViolationFoundError(
                    "G2",
                    f"generation {number} commits other windows than lease {row['token']} trained: {differing[:8]}",
                )

    def _windows(self, epoch: int, start: int, stop: int) -> list[int]:
        if epoch not in self._orders:
            self._orders[epoch] = epoch_order(self._corpus.blocks, self._seed, epoch)
        order = self._orders[epoch]
        return list(window_numbers(self._corpus.block(order[position]) for position in range(start, stop)))
