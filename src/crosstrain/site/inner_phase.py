"""One inner phase of a site, from the lease to the answered contribution.

    train -> checkpoint -> export -> remember -> upload -> contribute

Checkpoint and note are on the disk before the contribution is announced: a crash after that resumes at `upload`, a crash
before it loses the phase, whose blocks are then free for others.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

from crosstrain.domain.ids import Digest, Generation, Token
from crosstrain.domain.phase import PhasePlan, PhaseProgress, PhaseResult, step_count
from crosstrain.domain.schedule import LearningRateSchedule
from crosstrain.domain.site import Phase
from crosstrain.errors import Refused
from crosstrain.site.commands import plan_to_json, result_from_json
from crosstrain.site.machine import Machine, Parts, Pause, Stage
from crosstrain.site.walltime import Pace, must_stop
from crosstrain.storage.object_store import digest_file
from crosstrain.wire import messages

log = logging.getLogger(__name__)

LONGEST_REASON = 500
"""Characters of a reason that is sent along."""


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
        self._trained_at: float | None = None
        self.pace = Pace()
        self.stop_reason = ""
        self.contributed = 0
        inner = parts.config.inner
        self._schedule = LearningRateSchedule(
            inner.lr, inner.warmup_steps, parts.config.total_steps, inner.min_lr_factor
        )

    def train(self, lease: messages.LeaseInfo, base: Digest) -> Pause:
        """Begins the phase of a lease, from the weights `base` that the trainer holds."""
        self._lease, self._base = lease, base
        self._p.board.hold(Token(lease.token))
        plan = self._plan(lease)
        self._p.board.show(Phase.TRAINING, 0, len(plan.learning_rates))
        return self._machine.command(
            "run", partial(self._trained, plan), partial(self._look, plan), plan=plan_to_json(plan)
        )

    def send_pending(self) -> Pause:
        """Sends finished work that the coordinator may not know of."""
        pending = self._p.spool.note.pending
        assert pending is not None
        token = Token(pending.token)
        self._p.board.hold(token)
        request = pending.contribution.model_copy(update={"session": self._machine.session})
        delta, deadline_s = Digest(request.delta), self._p.api.deadline_s
        try:
            self._p.blobs.upload(self._p.spool.delta, delta, deadline_s, self._p.shows(Phase.UPLOADING))
            reply = self._p.api.contribute(token, request)
            outcome = "accepted" if reply.accepted else "refused"
            self._machine.say(f"contribution of lease {token} {outcome}: {reply.reason}")
        except Refused as error:
            if error.kind == "fenced":
                raise
            self._machine.say(f"contribution of lease {token} refused: {error}")
            self._p.api.release(token, self._machine.session, f"refused: {error.message}"[:LONGEST_REASON])
        self._p.spool.forget()
        self.contributed += 1
        if self._trained_at is not None:
            self.pace = self.pace.after(closing_s=self._p.clock.perf() - self._trained_at)
        self._lease, self._trained_at = None, None
        return self._machine.go(self._after)

    def abandon(self, reason: str) -> Pause:
        """Gives the lease back, if there is one whose work is not noted yet."""
        lease, self._lease = self._lease, None
        self._p.board.hold(None)
        if lease is not None and self._p.spool.note.pending is None:
            self._machine.say(f"gave lease {lease.token} back: {reason}")
            try:
                self._p.api.release(Token(lease.token), self._machine.session, reason[:LONGEST_REASON])
            except Refused as error:
                log.warning("%s", error)
        return self._machine.go(self._after)

    def _plan(self, lease: messages.LeaseInfo) -> PhasePlan:
        blocks = self._p.order.windows(lease.spans)
        per_step = self._p.site.windows_per_step
        steps = step_count(sum(block.count for block in blocks), per_step)
        rates = self._schedule.values(lease.global_step, steps)
        return PhasePlan(Generation(lease.generation), lease.global_step, per_step, rates, blocks, Token(lease.token))

    def _look(self, plan: PhasePlan, progress: PhaseProgress | None) -> None:
        """Shows a running phase, and stops it when it must end early."""
        if progress is not None:
            detail = f"lease {plan.token}, {progress.blocks} of {len(plan.blocks)} blocks"
            self._p.board.show(Phase.TRAINING, progress.steps, len(plan.learning_rates), progress.loss, detail)
        reason = self._reason_to_stop(plan.token)
        if reason:
            self._machine.say(f"stopping at the next block boundary: {reason}")
            self._p.link.request_stop()

    def _reason_to_stop(self, token: Token) -> str:
        heard = self._p.board.heard
        if token in heard.lost:
            return f"lease {token} is over"
        ending = must_stop(self._p.seconds_left, self.pace, self._p.site.margin_s)
        return self.stop_reason or heard.drain or (ending.reason if ending else "")

    def _trained(self, plan: PhasePlan, value: dict[str, Any]) -> Pause:
        result = result_from_json(value)
        if not result.blocks:
            return self.abandon("no block of it was trained")
        self.pace = self.pace.after(block_s=result.seconds / result.blocks)
        if plan.token in self._p.board.heard.lost:
            return self.abandon("it was over before its end")
        self._trained_at = self._p.clock.perf()
        self._p.board.show(Phase.CHECKPOINTING)
        checkpoint = self._p.spool.next_checkpoint()
        saved = partial(self._saved, plan, result, checkpoint)
        return self._machine.command("save", saved, directory=str(checkpoint))

    def _saved(self, plan: PhasePlan, result: PhaseResult, checkpoint: Path, _value: dict[str, Any]) -> Pause:
        assert self._base is not None
        self._p.spool.checkpoint_made(checkpoint)
        self._p.board.show(Phase.UPLOADING)
        return self._machine.command(
            "export",
            partial(self._exported, plan, result),
            path=str(self._p.spool.delta),
            base=str(self._p.spool.base(self._base)),
            codec=self._p.config.wire.delta,
        )

    def _exported(self, plan: PhasePlan, result: PhaseResult, _value: dict[str, Any]) -> Pause:
        contribution = messages.ContributionRequest(
            session=self._machine.session,
            generation=plan.generation,
            blocks=result.blocks,
            windows=result.windows,
            tokens=result.tokens,
            steps=result.steps,
            delta=digest_file(self._p.spool.delta),
            windows_digest=result.windows_digest,
            loss=result.losses[-1] if result.losses else None,
            seconds=result.seconds,
        )
        self._p.spool.remember(plan.token, contribution)
        return self._machine.go(self.send_pending)
