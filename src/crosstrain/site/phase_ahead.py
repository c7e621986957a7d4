"""Inner phases with overlap: while the finished phase is uploaded and merged, the next one is trained (`round.overlap`).

    train -> checkpoint -> export -> remember -> (courier: upload, contribute, merge, download)
                                         |                               |
                                         ask ahead -> train ahead -> move -> train on -> checkpoint ...

The phase ahead begins at the site's own weights and is moved to the generation at the first block boundary after it arrived; from
then on it is a phase as any other. It cannot be contributed before, and stands and falls with the finished phase: if that does not
count, or the site must end before the generation is there, its lease is given back. Until it is moved it is not checkpointed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from crosstrain.domain.ids import Generation
from crosstrain.domain.phase import PhasePlan
from crosstrain.domain.site import Phase
from crosstrain.domain.timeouts import TRAINER_LOOK_S
from crosstrain.site.inner_phase import InnerPhase
from crosstrain.site.machine import Machine, Parts, Pause, Stage
from crosstrain.site.overlap import Overlap
from crosstrain.site.walltime import blocks_that_fit, may_begin
from crosstrain.wire import messages


class PhaseAhead(InnerPhase):
    """Trains leases, each while the work of the one before is on its way."""

    def __init__(self, parts: Parts, machine: Machine, after: Stage, overlap: Overlap) -> None:
        super().__init__(parts, machine, after)
        self._overlap = overlap
        self._began_ahead = False
        self._copied = False  # the weights at the end of the last phase are in the spool
        self._ahead = False  # began ahead and was not moved yet

    # -- between the phases -----------------------------------------------------------------------------------------

    def _start_file(self) -> dict[str, Any]:
        assert self._lease is not None
        self._copied = self._lease.generation + 1 < self._p.config.run.rounds and not self.reason_to_leave()
        return {"start": str(self._p.spool.start)} if self._copied else {}

    def _send(self) -> Pause:
        if not self._copied or self.reason_to_leave():
            return super()._send()
        pending = self._p.spool.note.pending
        assert pending is not None and self._lease is not None and self._trained_at is not None
        self._overlap.begin(pending, self._lease.global_step + self._done.steps, self._trained_at)
        self._forget()
        return self._machine.go(self._after)

    def before_asking(self) -> Pause | None:
        """While the finished phase is on its way, the next one is asked for in its own way."""
        return self._machine.go(self._ask_ahead) if self._overlap.busy else None

    def _ask_ahead(self) -> Pause:
        self._look_beside()
        if not self._overlap.busy:
            return self._machine.go(self._after)
        self._p.board.hold(None)
        left, margin = self._p.seconds_left, self._p.site.margin_s
        enough = may_begin(left, self.pace, margin)
        if self.stop_reason or not enough:
            if self._overlap.answered:
                self._overlap.leave()
                return self._machine.go(self._after)
            return self._wait(f"the finished phase is sent, then this site leaves: {self.stop_reason or enough.reason}")
        if not self._overlap.ready:
            return self._wait("waiting for the next generation")
        fit = blocks_that_fit(left, self.pace, margin)
        request = messages.NextRequest(holds=None, max_blocks=fit, ahead=self._overlap.wish)
        reply = self._p.api.next_work(self._machine.session, request)
        self._machine.say(f"{reply.work}: {reply.reason}")
        if reply.work != "train":
            self._p.board.show(Phase.WAITING, detail=reply.reason)
            return Pause(min(1.0, reply.poll_ms / 1000))
        assert reply.lease is not None
        self._p.spool.forget_partial()
        self._ahead = self._began_ahead = True
        self._overlap.give_up()
        return self._begin(reply.lease, None)

    # -- training ---------------------------------------------------------------------------------------------------

    def _plan(self) -> PhasePlan:
        plan = super()._plan()
        held = Generation(plan.generation - 1) if self._ahead else plan.generation
        return replace(plan, generation=held, ahead=self._began_ahead and not self._done.blocks)

    def _segment(self) -> Pause:
        return self._move() if self._movable else super()._segment()

    def reason_to_end(self) -> str:
        """As of every phase; the cutoff of the open round is none of a phase of the next one."""
        if not self._ahead:
            return super().reason_to_end()
        assert self._lease is not None
        self._look_beside()
        lost = self._lease.token in self._p.board.heard.lost
        over = f"lease {self._lease.token} is over" if lost else ""
        return over or self._overlap.refused or self.reason_to_leave()

    def reason_to_interrupt(self) -> str:
        """As of every phase, but a phase ahead is moved and not saved."""
        if not self._ahead:
            return super().reason_to_interrupt()
        if self._overlap.arrived is not None:
            return f"generation {self._overlap.arrived.generation} is here"
        return "another site asks for a part of this lease" if self._p.board.asked_to_shed else ""

    def _checkpoint_due(self) -> bool:
        return not self._ahead and super()._checkpoint_due()

    def _close(self) -> Pause:
        return self._machine.go(self._await_generation) if self._ahead else super()._close()

    def _await_generation(self) -> Pause:
        """A phase ahead that is trained, or must end, before the generation is there."""
        assert self._lease is not None
        reason = self.reason_to_end()
        if self._movable:
            return self._machine.go(self._segment)
        if reason and (self._overlap.answered or self._lease.token in self._p.board.heard.lost):
            return self.abandon(reason)
        return self._wait(f"waiting for generation {self._lease.generation}, which lease {self._lease.token} follows")

    # -- moving -----------------------------------------------------------------------------------------------------

    @property
    def _movable(self) -> bool:
        arrived, lease = self._overlap.arrived, self._lease
        return self._ahead and arrived is not None and lease is not None and arrived.generation == lease.generation

    def _move(self) -> Pause:
        arrived = self._overlap.arrived
        assert arrived is not None
        self._p.board.show(Phase.ADOPTING)
        return self._machine.command(
            "move",
            self._moved,
            start=str(self._p.spool.start),
            target=str(self._p.spool.base(arrived.weights)),
            work=str(self._p.spool.moved),
            generation=arrived.generation,
            windows=self._p.config.heldout.windows if arrived.measure else 0,
        )

    def _moved(self, value: dict[str, Any]) -> Pause:
        arrived = self._overlap.arrived
        assert arrived is not None and self._lease is not None
        self._machine.say(f"lease {self._lease.token} is moved to generation {arrived.generation}")
        self._ahead, self._base, self._saved_at = False, arrived.weights, self._p.clock.perf()
        self._p.spool.start.unlink(missing_ok=True)
        # Never back: the record of trained windows tells steps of one phase apart by their numbers.
        step = max(self._lease.global_step, arrived.global_step)
        self._lease = self._lease.model_copy(update={"global_step": step})
        if value["tokens"] > 0:
            measure = messages.EvaluationRequest(
                generation=arrived.generation, nll=value["nll"], tokens=value["tokens"]
            )
            self._p.api.evaluation(self._machine.session, measure)
        return self._machine.go(self._segment)

    # -- beside -----------------------------------------------------------------------------------------------------

    def abandon(self, reason: str) -> Pause:
        """As of every phase; afterwards nothing is trained ahead of the generation that is waited for."""
        self._overlap.give_up()
        return super().abandon(reason)

    def _forget(self) -> None:
        super()._forget()
        self._ahead = self._began_ahead = False

    def _look_beside(self) -> None:
        before = self._overlap.answered
        self._overlap.look()
        if self._overlap.answered and not before:
            self.contributed += 1
            self.pace = self.pace.after(closing_s=self._overlap.took_s)

    def _wait(self, reason: str) -> Pause:
        self._p.board.show(Phase.WAITING, detail=reason)
        self._machine.say(reason)
        return Pause(TRAINER_LOOK_S)
