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
from crosstrain.domain.generation import is_finished
from crosstrain.domain.ids import Generation, Instant, Token
from crosstrain.domain.lease import GrantSize, Lease
from crosstrain.domain.verdict import Verdict
from crosstrain.storage import lease_store, ledger_store
from crosstrain.storage.asking import Asking
from crosstrain.storage.ledger_store import FirstFree
from crosstrain.wire import messages


@dataclass
class LazyView:
    """A `domain.instruction.WorkView` over one transaction: what the decision does not ask for is not worked out."""

    service: Service
    connection: Connection
    asking: Asking
    request: messages.NextRequest
    now: Instant

    @property
    def current(self) -> Generation | None:
        return self.asking.model.number if self.asking.model else None

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
            return initialiser not in (None, self.asking.session) and initialiser in presences.sessions

    @cached_property
    def must_evaluate(self) -> bool:
        if self.current is None or self.service.config.heldout.windows == 0 or self.asking.evaluated:
            return False
        presences = self.service.presences
        with presences.lock:
            evaluator = presences.evaluators.get(self.current)
            return evaluator in (None, self.asking.session) or evaluator not in presences.sessions

    @cached_property
    def finished(self) -> Verdict:
        settings = self.service.config.run
        if self.asking.finished is not None:
            return Verdict(True, self.asking.finished)
        return is_finished(self.current or Generation(0), settings.rounds, self.asking.epoch, settings.epochs)

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
    def room(self) -> Verdict:
        if self.asking.begun_at is not None or self.asking.model is None:
            return Verdict(True, "the round has begun")
        return self.service.room(self.asking.model.weights)

    @property
    def closing(self) -> str | None:
        return self.asking.closing

    @property
    def contributed(self) -> bool:
        return self.asking.contributed

    @cached_property
    def resumable(self) -> int:
        saved = self.request.resume
        if saved is None or self.current is None or saved.generation != self.current:
            return 0
        before = lease_store.find(self.connection, Token(saved.token))
        if before is None or (before.site, before.generation) != (self.asking.site, saved.generation):
            return 0  # whatever was trained there, it was not under a lease of this site
        available = ledger_store.are_available(self.connection, saved.spans)
        return sum(stop - start for _, start, stop in saved.spans) if available else 0

    @cached_property
    def drain(self) -> Verdict:
        return outer_round.must_drain(self.asking.begun_at or self.now, self.service.rules, self.now)

    @cached_property
    def free(self) -> FirstFree:
        """Where a lease is cut from."""
        return ledger_store.first_free(self.connection, self.asking.epoch)

    @cached_property
    def size(self) -> GrantSize | None:
        return None if self.current is None else self._size_in(self.current, self.asking.begun_at)

    def _size_in(self, generation: Generation, begun_at: Instant | None) -> GrantSize | None:
        """What the session would be granted in the round of that generation."""
        free = self.free.blocks
        if free == 0:
            return None
        asking, service = self.asking, self.service
        mine = pace.demand(service, asking.site, asking.windows_per_step, asking.rate)
        begun = begun_at or self.now
        known = pace.of_round(service, self.connection, generation, begun, asking.site, self.now)
        enough = mine.full_blocks + known.largest * len(service.presences.sessions)
        if free < enough and not self.free.whole:
            free = ledger_store.blocks_in(self.connection, asking.epoch, BlockState.AVAILABLE)
        others = [] if free >= enough else pace.others(service, self.connection, asking.site)
        left = None if known.close is None else max(0.0, (known.close - self.now) / 1000)
        return lease_rules.size_grant(mine, others, free, left, self.request.max_blocks)

    @cached_property
    def predecessor(self) -> Lease | None:
        """The lease on whose strength the session wants one of the next round; None if it never held it."""
        if self.request.ahead is None:
            return None
        found = lease_store.find(self.connection, Token(self.request.ahead.token))
        return found if found is not None and found.session == self.asking.session else None

    @property
    def overlap(self) -> bool:
        return self.service.config.round.overlap

    @property
    def rounds(self) -> int:
        return self.service.config.run.rounds

    @cached_property
    def size_ahead(self) -> GrantSize | None:
        """As `size`, in the round after the open one."""
        if self.current is None:
            return None
        following = Generation(self.current + 1)
        return self._size_in(following, lease_store.round_begun(self.connection, following))
