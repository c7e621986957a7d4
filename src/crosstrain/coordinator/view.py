"""The moment on which the answer to an asking session is decided."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sqlalchemy import Connection

from crosstrain.coordinator import pace
from crosstrain.coordinator.service import Service
from crosstrain.domain import lease as lease_rules
from crosstrain.domain import outer_round
from crosstrain.domain.block import BlockState
from crosstrain.domain.generation import GenerationRecord, is_finished
from crosstrain.domain.ids import Generation, Instant, SessionId, SiteName
from crosstrain.domain.lease import GrantSize
from crosstrain.domain.verdict import Verdict
from crosstrain.storage import lease_store, ledger_store, run_store, site_store
from crosstrain.storage.prepared import Row
from crosstrain.wire import messages


@dataclass
class LazyView:
    """A `domain.instruction.WorkView` over one transaction: each question goes to the database when it is asked, once."""

    service: Service
    connection: Connection
    session: SessionId
    site: SiteName
    record: GenerationRecord | None
    request: messages.NextRequest
    now: Instant

    @property
    def current(self) -> Generation | None:
        return self.record.number if self.record else None

    @property
    def holds(self) -> Generation | None:
        return None if self.request.holds is None else Generation(self.request.holds)

    @property
    def barrier(self) -> Verdict:
        return self.service.barrier

    @cached_property
    def initialiser_elsewhere(self) -> bool:
        presences = self.service.presences
        with presences.lock:
            initialiser = presences.initialiser
            return initialiser is not None and initialiser != self.session and initialiser in presences.sessions

    @cached_property
    def must_evaluate(self) -> bool:
        if self.current is None or self.service.config.heldout.windows == 0:
            return False
        if run_store.evaluation(self.connection, self.current) is not None:
            return False
        presences = self.service.presences
        with presences.lock:
            evaluator = presences.evaluators.get(self.current)
            return evaluator is None or evaluator == self.session or evaluator not in presences.sessions

    @cached_property
    def finished(self) -> Verdict:
        settings = self.service.config.run
        if self._run["finished_at"] is not None:
            return Verdict(True, str(self._run["finished_reason"]))
        return is_finished(self.current or Generation(0), settings.rounds, self._run["epoch"], settings.epochs)

    @cached_property
    def start(self) -> Verdict:
        if self.current is None or self.current > 0:
            return Verdict(True, "the run has started")
        presences = self.service.presences
        with presences.lock:
            present = len(presences.sessions)
            came = presences.first_came_at or self.now
        return outer_round.may_start(present, came, self.service.rules, self.now)

    @cached_property
    def closing(self) -> str | None:
        opened = run_store.newest_round(self.connection)
        return opened["reason"] if opened and opened["closing_at"] and not opened["published_at"] else None

    @cached_property
    def contributed(self) -> bool:
        return self.current is not None and lease_store.has_contributed(self.connection, self.current, self.site)

    @cached_property
    def resumable(self) -> int:
        saved = self.request.resume
        if saved is None or self.current is None or saved.generation != self.current:
            return 0
        available = ledger_store.are_available(self.connection, saved.spans)
        return sum(stop - start for _, start, stop in saved.spans) if available else 0

    @cached_property
    def drain(self) -> Verdict:
        return outer_round.must_drain(self._begun, self.service.rules, self.now)

    @cached_property
    def size(self) -> GrantSize | None:
        free = ledger_store.blocks_in(self.connection, self._run["epoch"], BlockState.AVAILABLE)
        if free == 0 or self.current is None:
            return None
        row = site_store.find(self.connection, self.site)
        assert row is not None
        mine = pace.demand(self.service, row)
        known = pace.of_round(self.service, self.connection, self.current, self._begun, self.site, self.now)
        ample = free >= mine.full_blocks + known.largest * len(self.service.presences.sessions)
        others = [] if ample else pace.others(self.service, self.connection, self.site)
        left = None if known.close is None else max(0.0, (known.close - self.now) / 1000)
        return lease_rules.size_grant(mine, others, free, left, self.request.max_blocks)

    @cached_property
    def _run(self) -> Row:
        return run_store.progress(self.connection)

    @cached_property
    def _begun(self) -> Instant:
        begun = None if self.current is None else lease_store.round_begun(self.connection, self.current)
        return begun or self.now
