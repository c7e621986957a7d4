"""One inner phase of a site, from the lease to the answered contribution.

    train (in segments) -> checkpoint -> export -> remember -> upload -> contribute

A segment is one run of the trainer. It ends with the phase, or at a block boundary because the phase must end early,
because a checkpoint is due, or because another site asks for a part; after the last two the phase goes on. Checkpoint and
note are on the disk before anything is announced, so that a crash resumes at the newest note.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

from crosstrain.domain.ids import Digest, Generation, Token
from crosstrain.domain.phase import NOTHING, PhasePlan, PhaseProgress, WindowRange, join_results, step_count
from crosstrain.domain.plural import counted
from crosstrain.domain.schedule import LearningRateSchedule
from crosstrain.domain.site import Phase
from crosstrain.errors import Refused
from crosstrain.site.commands import plan_to_json, result_from_json
from crosstrain.site.courier import LONGEST_REASON, deliver
from crosstrain.site.machine import Machine, Parts, Pause, Stage
from crosstrain.site.order import first_blocks
from crosstrain.site.spool import Partial
from crosstrain.site.walltime import Pace, must_stop
from crosstrain.wire import messages

log = logging.getLogger(__name__)


class InnerPhase:
    """Trains leases.

    Args:
        after: the stage that follows, whatever came of the phase.

    Attributes:
        pace: what was measured of this site.
        stop_reason: set to end the phase at its next block boundary.
        contributed: contributions that were answered.
    """

    def __init__(self, parts: Parts, machine: Machine, after: Stage) -> None:
        self._p = parts
        self._machine = machine
        self._after = after
        self._lease: messages.LeaseInfo | None = None
        self._base: Digest | None = None
        self._blocks: tuple[WindowRange, ...] = ()
        self._done = NOTHING
        self._saved_at = 0.0
        self._began_at = 0.0
        self._trained_at: float | None = None
        self.pace = Pace()
        self.stop_reason = ""
        self.contributed = 0
        inner = parts.config.inner
        self._schedule = LearningRateSchedule(
            inner.lr, inner.warmup_steps, parts.config.total_steps, inner.min_lr_factor
        )

    def before_asking(self) -> Pause | None:
        """What comes before the coordinator is asked for work, if anything does."""
        return None

    # -- beginning --------------------------------------------------------------------------------------------------

    def train(self, lease: messages.LeaseInfo, base: Digest) -> Pause:
        """Begins the phase of a lease, from the weights `base` that the trainer holds."""
        self._p.spool.forget_partial()
        return self._begin(lease, base)

    def resume(self, lease: messages.LeaseInfo, saved: Partial) -> Pause:
        """Goes on with a saved phase, whose checkpoint the trainer holds, under a lease of the same blocks."""
        self._machine.say(f"going on with lease {lease.token} after {counted(saved.done.blocks, 'block')}")
        self._done = saved.done
        return self._begin(lease, Digest(saved.base))

    def _begin(self, lease: messages.LeaseInfo, base: Digest | None) -> Pause:
        self._lease, self._base = lease, base
        self._blocks = self._p.order.windows(lease.spans)
        self._saved_at = self._p.clock.perf()
        self._p.board.hold(Token(lease.token))
        return self._machine.go(self._segment)

    # -- training ---------------------------------------------------------------------------------------------------

    def _segment(self) -> Pause:
        plan = self._plan()
        if not plan.blocks:
            return self._machine.go(self._close)
        self._began_at = self._p.clock.perf()
        self._p.board.show(Phase.TRAINING, self._done.steps, self._done.steps + len(plan.learning_rates))
        return self._machine.command(
            "run", partial(self._segment_done, plan), partial(self._look, plan), plan=plan_to_json(plan)
        )

    def _plan(self) -> PhasePlan:
        assert self._lease is not None
        blocks = self._blocks[self._done.blocks :]
        per_step, first = self._p.site.windows_per_step, self._lease.global_step + self._done.steps
        rates = self._schedule.values(first, step_count(sum(block.count for block in blocks), per_step))
        return PhasePlan(Generation(self._lease.generation), first, per_step, rates, blocks, Token(self._lease.token))

    def _look(self, plan: PhasePlan, progress: PhaseProgress | None) -> None:
        """Shows a running segment, and stops it when it must end early."""
        if progress is not None:
            if progress.blocks and self.pace.block_s is None:  # the first phase: nothing was measured before
                self.pace = self.pace.after(block_s=(self._p.clock.perf() - self._began_at) / progress.blocks)
            steps, blocks = self._done.steps + progress.steps, self._done.blocks + progress.blocks
            detail = f"lease {plan.token}, {blocks} of {counted(len(self._blocks), 'block')}"
            total = self._done.steps + len(plan.learning_rates)
            self._p.board.show(Phase.TRAINING, steps, total, progress.loss, detail, blocks)
        reason = self.reason_to_end() or self.reason_to_interrupt()
        if reason:
            self._machine.say(f"stopping at the next block boundary: {reason}")
            self._p.link.request_stop()

    def reason_to_end(self) -> str:
        """Why the phase must end at its next block boundary; empty: it need not."""
        assert self._lease is not None
        heard = self._p.board.heard
        if self._lease.token in heard.lost:
            return f"lease {self._lease.token} is over"
        return self.reason_to_leave() or heard.drain

    def reason_to_leave(self) -> str:
        """Why the site is to end, and its phase with it."""
        ending = must_stop(self._p.seconds_left, self.pace, self._p.site.margin_s)
        return self.stop_reason or (ending.reason if ending else "")

    def reason_to_interrupt(self) -> str:
        """Why a segment is to end there and the phase to go on afterwards; empty: it need not."""
        if self._p.board.asked_to_shed:
            return "another site asks for a part of this lease"
        return "a checkpoint is due" if self._checkpoint_due() else ""

    def _checkpoint_due(self) -> bool:
        return self._p.clock.perf() - self._saved_at >= self._p.site.checkpoint_s

    def _segment_done(self, _plan: PhasePlan, value: dict[str, Any]) -> Pause:
        assert self._lease is not None
        result = result_from_json(value)
        if result.blocks:
            self.pace = self.pace.after(block_s=result.seconds / result.blocks)
            self._done = join_results(self._done, result)
        if self._lease.token in self._p.board.heard.lost:
            return self.abandon("it was over before its end")
        if self._p.board.asked_to_shed:
            self._shed()
        if self._done.blocks == len(self._blocks) or self.reason_to_end():
            return self._machine.go(self._close)
        if self._checkpoint_due():
            return self._save(self._saved_between)
        return self._machine.go(self._segment)

    def _shed(self) -> None:
        """Keeps the nearer half of what is untouched and says so; the other half is not touched from here on, whether the
        answer arrives or not."""
        assert self._lease is not None
        untouched = len(self._blocks) - self._done.blocks
        self._blocks = self._blocks[: self._done.blocks + -(-untouched // 2)]
        self._p.board.shed(Token(self._lease.token), len(self._blocks))
        self._machine.say(f"kept {counted(len(self._blocks), 'block')} of lease {self._lease.token} for this site")

    # -- saving -----------------------------------------------------------------------------------------------------

    def _save(self, then: Any) -> Pause:
        self._p.board.show(Phase.CHECKPOINTING)
        checkpoint = self._p.spool.next_checkpoint()
        return self._machine.command("save", partial(self._saved, checkpoint, then), directory=str(checkpoint))

    def _saved(self, checkpoint: Path, then: Any, _value: dict[str, Any]) -> Pause:
        self._p.spool.checkpoint_made(checkpoint)
        self._saved_at = self._p.clock.perf()
        pause: Pause = then(checkpoint)
        return pause

    def _saved_between(self, checkpoint: Path) -> Pause:
        assert self._lease is not None and self._base is not None
        kept = self._lease.model_copy(update={"spans": first_blocks(self._lease.spans, len(self._blocks))})
        self._p.spool.remember_partial(
            Partial(lease=kept, base=self._base, done=self._done, checkpoint=checkpoint.name)
        )
        return self._machine.go(self._segment)

    def _close(self) -> Pause:
        if not self._done.blocks:
            return self.abandon("no block of it was trained")
        self._trained_at = self._p.clock.perf()
        return self._save(self._saved_at_end)

    def _saved_at_end(self, _checkpoint: Path) -> Pause:
        assert self._base is not None
        self._p.board.show(Phase.UPLOADING)
        return self._machine.command(
            "export",
            self._exported,
            path=str(self._p.spool.delta),
            base=str(self._p.spool.base(self._base)),
            codec=self._p.config.wire.delta,
            compress=self._p.config.wire.compress,
            **self._residual_files(),
            **self._start_file(),
        )

    def _start_file(self) -> dict[str, Any]:
        """The part of "export" about the weights that a phase ahead would begin at."""
        return {}

    def _residual_files(self) -> dict[str, Any]:
        """The part of "export" about error feedback, for the codecs that leave something out."""
        if self._p.config.wire.delta not in ("int8", "int4"):
            return {}
        before, after = self._p.spool.residual, self._p.spool.next_residual
        return {"residual": {"before": str(before) if before else None, "after": str(after)}}

    def _exported(self, value: dict[str, Any]) -> Pause:
        assert self._lease is not None
        done = self._done
        contribution = messages.ContributionRequest(
            session=self._machine.session,
            generation=self._lease.generation,
            blocks=done.blocks,
            windows=done.windows,
            tokens=done.tokens,
            steps=done.steps,
            delta=Digest(value["digest"]),
            windows_digest=done.windows_digest,
            loss=done.losses[-1] if done.losses else None,
            seconds=done.seconds,
        )
        residual = self._p.spool.next_residual if self._residual_files() else None
        self._p.spool.remember(Token(self._lease.token), contribution, residual)
        return self._send()

    def _send(self) -> Pause:
        """The phase is trained, written and noted."""
        return self._machine.go(self.send_pending)

    # -- ending -----------------------------------------------------------------------------------------------------

    def send_pending(self) -> Pause:
        """Sends finished work that the coordinator may not know of."""
        pending = self._p.spool.note.pending
        assert pending is not None
        self._p.board.hold(Token(pending.token))
        shows = self._p.shows(Phase.UPLOADING)
        answered = deliver(self._p.api, self._p.blobs, self._p.spool.delta, pending, self._machine.session, shows)
        self._machine.say(answered.sentence)
        self._p.spool.forget(answered.fate)
        self.contributed += 1
        if self._trained_at is not None:
            self.pace = self.pace.after(closing_s=self._p.clock.perf() - self._trained_at)
        self._forget()
        return self._machine.go(self._after)

    def abandon(self, reason: str) -> Pause:
        """Gives the lease back, if there is one whose work is not noted as finished."""
        lease = self._lease
        self._forget()
        self._p.board.hold(None)
        pending = self._p.spool.note.pending
        if lease is not None and (pending is None or pending.token != lease.token):
            self._p.spool.forget_partial()
            self._machine.say(f"gave lease {lease.token} back: {reason}")
            try:
                self._p.api.release(Token(lease.token), self._machine.session, reason[:LONGEST_REASON])
            except Refused as error:
                log.warning("%s", error)
        return self._machine.go(self._after)

    def _forget(self) -> None:
        self._lease, self._trained_at, self._done, self._blocks = None, None, NOTHING, ()
