"""The site agent: a small machine of stages, driven by step().

    register -> boot -> (restore) -> (send pending work) -> ask
    ask -> initialise | adopt | evaluate | train | wait | finished -> ask
    train -> checkpoint -> export -> upload -> contribute -> ask

Each step does one short thing and says how long to pause; the trainer works in processes of its own meanwhile. What must
survive a crash is in the spool before it is announced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from crosstrain.clock import Clock
from crosstrain.config import RunConfig, SiteSection
from crosstrain.domain.ids import Digest, Generation, Instant, SessionId, SiteName, Token
from crosstrain.domain.phase import PhasePlan, PhaseProgress, PhaseResult, step_count
from crosstrain.domain.schedule import LearningRateSchedule
from crosstrain.domain.site import Phase
from crosstrain.errors import CrosstrainError, Diverged, IntegrityError, Refused
from crosstrain.site.commands import plan_to_json, result_from_json
from crosstrain.site.heartbeat import Board
from crosstrain.site.order import BlockOrder
from crosstrain.site.spool import Spool
from crosstrain.site.trainer_link import Done, Failed, Progress, Ready, TrainerLink
from crosstrain.site.walltime import Pace, blocks_that_fit, may_begin, must_stop
from crosstrain.storage.object_store import digest_file
from crosstrain.wire import messages
from crosstrain.wire.site_api import SiteApi
from crosstrain.wire.transfer import BlobClient

log = logging.getLogger(__name__)

TRAINER_POLL_S = 0.02
MAX_FAILURES = 3
"""Trainer failures in a row, without a contribution between them, after which the site gives up."""
LEAVE_DEADLINE_S = 5.0


@dataclass(frozen=True, slots=True)
class Pause:
    """How long to wait before the next step; `over` ends the agent."""

    seconds: float
    over: bool = False


Stage = Callable[[], Pause]


@dataclass(slots=True)
class Parts:
    """What an agent works with, put together by `assembly`.

    Attributes:
        begin_heartbeat: starts the heartbeats of a session.
        ends_at: when the job ends by this machine's clock, None if unknown.
    """

    config: RunConfig
    site: SiteSection
    name: SiteName
    clock: Clock
    api: SiteApi
    blobs: BlobClient
    link: TrainerLink
    spool: Spool
    board: Board
    order: BlockOrder
    fingerprint: messages.Fingerprint
    begin_heartbeat: Callable[[SessionId, int], None]
    ends_at: Instant | None
    connect_s: float
    version: str


class Agent:
    """One session of a site, from registration to its end."""

    def __init__(self, parts: Parts) -> None:
        self._p = parts
        self._stage: Stage = self._register
        self._session = SessionId(-1)
        self._lease: messages.LeaseInfo | None = None
        self._kept: frozenset[int] = frozenset()
        self._holds: Generation | None = None
        self._base: Digest | None = None
        self._pace = Pace()
        self._failures = 0
        self._trained_at = 0.0
        self._said = ""
        self.stop_reason = ""
        """Set from outside (a signal) to drain and leave."""
        schedule, inner = parts.config.inner, parts.config.inner
        self._schedule = LearningRateSchedule(
            inner.lr, schedule.warmup_steps, parts.config.total_steps, schedule.min_lr_factor
        )

    def step(self) -> Pause:
        """Does the next short thing.

        Raises:
            CrosstrainError: the session cannot go on; the reason is in the message.
        """
        over = self._p.board.heard.over
        if over is not None:
            raise over
        left = self._left()
        if left is not None:
            self._p.api.deadline_s = max(1.0, left)
        return self._stage()

    def leave(self, reason: str) -> None:
        """Ends the session at the coordinator, so that its blocks are free at once. Failing to is not an error: they are
        free after their time to live."""
        if self._session < 0:
            return
        try:
            self._p.api.end(self._session, reason, LEAVE_DEADLINE_S)
        except CrosstrainError as error:
            log.warning("could not say goodbye: %s", error.message)

    # -- coming -----------------------------------------------------------------------------------------------------

    def _register(self) -> Pause:
        pending = self._p.spool.note.pending
        request = messages.RegisterRequest(
            protocol=messages.PROTOCOL,
            version=self._p.version,
            site=self._p.name,
            ranks=self._p.site.ranks,
            windows_per_step=self._p.site.windows_per_step,
            fingerprint=self._p.fingerprint,
            inner_state="restored" if self._p.spool.newest_checkpoint() else "fresh",
            holding=(pending.token,) if pending else (),
        )
        reply = self._p.api.register(request, self._p.connect_s)
        self._session = SessionId(reply.session)
        self._kept = frozenset(lease.token for lease in reply.kept)
        self._say(f"session {reply.session} of run {reply.run}, inner state {request.inner_state}")
        if pending and pending.token in self._kept:
            self._p.board.hold(Token(pending.token))
        elif pending:
            self._say(f"the work of lease {pending.token} came too late; its blocks were given to others")
            self._p.spool.forget()
        self._p.begin_heartbeat(self._session, reply.heartbeat_ms)
        return self._go(self._boot)

    def _boot(self) -> Pause:
        self._p.board.show(Phase.BOOTING, detail="starting the trainer")
        self._holds = None
        self._p.link.start()
        return self._go(self._await_ready)

    def _await_ready(self) -> Pause:
        match self._p.link.poll():
            case Ready():
                checkpoint = self._p.spool.newest_checkpoint()
                if checkpoint is None:
                    return self._go(self._send_pending)
                return self._command("restore", self._restored, directory=str(checkpoint))
            case Failed(error):
                return self._trainer_failed(error)
        if self.stop_reason:
            return self._finish(self.stop_reason)
        return Pause(TRAINER_POLL_S)

    def _restored(self, _value: dict[str, Any]) -> Pause:
        self._say("inner optimiser state restored")
        return self._go(self._send_pending)

    def _send_pending(self) -> Pause:
        return self._go(self._upload if self._p.spool.note.pending else self._ask)

    # -- asking -----------------------------------------------------------------------------------------------------

    def _ask(self) -> Pause:
        self._p.board.hold(None)
        enough = may_begin(self._left(), self._pace, self._p.site.margin_s)
        if self.stop_reason or not enough:
            return self._finish(self.stop_reason or enough.reason)
        request = messages.NextRequest(
            holds=self._holds, max_blocks=blocks_that_fit(self._left(), self._pace, self._p.site.margin_s)
        )
        reply = self._p.api.next_work(self._session, request)
        self._say(f"{reply.work}: {reply.reason}")
        match reply.work:
            case "initialise":
                self._p.board.show(Phase.INITIALISING)
                path = self._p.spool.directory / "initial.safetensors"
                seed = self._p.config.run.seed
                return self._command("initialise", self._initialised, seed=seed, path=str(path))
            case "adopt":
                return self._adopt(reply)
            case "evaluate":
                self._p.board.show(Phase.EVALUATING)
                return self._command("evaluate", self._evaluated, windows=self._p.config.heldout.windows)
            case "train":
                return self._train(reply)
            case "wait":
                self._p.board.show(Phase.WAITING, detail=reply.reason)
                return Pause(reply.poll_ms / 1000)
            case "finished":
                return self._finish(reply.reason)

    def _initialised(self, _value: dict[str, Any]) -> Pause:
        path = self._p.spool.directory / "initial.safetensors"
        digest = digest_file(path)
        self._p.blobs.upload(path, digest, self._p.api.deadline_s, self._shows(Phase.INITIALISING))
        self._p.api.initial(self._session, messages.InitialRequest(weights=digest))
        path.unlink()
        return self._go(self._ask)

    def _adopt(self, reply: messages.NextReply) -> Pause:
        assert reply.generation is not None and reply.weights is not None
        self._p.board.show(Phase.ADOPTING)
        weights = Digest(reply.weights)
        path = self._p.spool.base(weights)
        if not path.exists():
            self._p.blobs.download(weights, path, self._p.api.deadline_s, self._shows(Phase.ADOPTING))
            self._p.spool.drop_other_bases(weights)
        done = partial(self._adopted, Generation(reply.generation), weights)
        return self._command("load", done, path=str(path), generation=reply.generation)

    def _adopted(self, generation: Generation, weights: Digest, _value: dict[str, Any]) -> Pause:
        self._holds, self._base = generation, weights
        return self._go(self._ask)

    def _evaluated(self, value: dict[str, Any]) -> Pause:
        assert self._holds is not None
        if value["tokens"] > 0:
            request = messages.EvaluationRequest(generation=self._holds, nll=value["nll"], tokens=value["tokens"])
            self._p.api.evaluation(self._session, request)
        return self._go(self._ask)

    # -- training ---------------------------------------------------------------------------------------------------

    def _train(self, reply: messages.NextReply) -> Pause:
        assert reply.lease is not None
        self._lease = reply.lease
        self._p.board.hold(Token(reply.lease.token))
        blocks = self._p.order.windows(reply.lease.spans)
        per_step = self._p.site.windows_per_step
        windows = sum(block.count for block in blocks)
        plan = PhasePlan(
            Generation(reply.lease.generation),
            reply.lease.global_step,
            per_step,
            self._schedule.values(reply.lease.global_step, step_count(windows, per_step)),
            blocks,
            Token(reply.lease.token),
        )
        self._p.board.show(Phase.TRAINING, 0, len(plan.learning_rates))
        self._holds = None
        return self._command("run", partial(self._trained, plan), partial(self._watch, plan), plan=plan_to_json(plan))

    def _watch(self, plan: PhasePlan, progress: PhaseProgress | None) -> None:
        """Looks at a running phase: shows it, and stops it when it must end early."""
        assert self._lease is not None
        if progress is not None:
            detail = f"lease {self._lease.token}, {progress.blocks} of {len(plan.blocks)} blocks"
            self._p.board.show(Phase.TRAINING, progress.steps, len(plan.learning_rates), progress.loss, detail)
        heard = self._p.board.heard
        ending = must_stop(self._left(), self._pace, self._p.site.margin_s)
        if self._lease.token in heard.lost:
            reason = f"lease {self._lease.token} is over"
        else:
            reason = self.stop_reason or heard.drain or (ending.reason if ending else "")
        if reason:
            self._say(f"stopping at the next block boundary: {reason}")
            self._p.link.request_stop()

    def _trained(self, plan: PhasePlan, value: dict[str, Any]) -> Pause:
        result = result_from_json(value)
        assert self._lease is not None
        if result.blocks:
            self._pace = self._pace.after(block_s=result.seconds / result.blocks)
        if self._lease.token in self._p.board.heard.lost or not result.blocks:
            return self._abandon("nothing of it was trained" if not result.blocks else "it was over before its end")
        self._trained_at = self._p.clock.perf()
        self._p.board.show(Phase.CHECKPOINTING)
        checkpoint = self._p.spool.next_checkpoint()
        return self._command("save", partial(self._saved, plan, result), directory=str(checkpoint))

    def _saved(self, plan: PhasePlan, result: PhaseResult, _value: dict[str, Any]) -> Pause:
        assert self._base is not None
        self._p.spool.checkpoint_made()
        self._p.board.show(Phase.UPLOADING)
        exported = partial(self._exported, plan, result)
        base, delta = str(self._p.spool.base(self._base)), str(self._p.spool.delta)
        return self._command("export", exported, path=delta, base=base, codec=self._p.config.wire.delta)

    def _exported(self, plan: PhasePlan, result: PhaseResult, _value: dict[str, Any]) -> Pause:
        assert self._lease is not None
        contribution = messages.ContributionRequest(
            session=self._session,
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
        self._p.spool.remember(Token(self._lease.token), contribution)
        return self._go(self._upload)

    def _upload(self) -> Pause:
        pending = self._p.spool.note.pending
        assert pending is not None
        token = Token(pending.token)
        self._p.board.hold(token)
        request = pending.contribution.model_copy(update={"session": self._session})
        try:
            delta = Digest(request.delta)
            self._p.blobs.upload(self._p.spool.delta, delta, self._p.api.deadline_s, self._shows(Phase.UPLOADING))
            reply = self._p.api.contribute(token, request)
            self._say(
                f"contribution of lease {token}: {reply.reason}" if reply.accepted else f"refused: {reply.reason}"
            )
        except Refused as error:
            if error.kind == "fenced":
                raise
            self._say(f"contribution of lease {token} refused: {error}")
            self._p.api.release(token, self._session, f"refused: {error.message}"[:500])
        self._p.spool.forget()
        self._failures = 0
        if self._trained_at:
            self._pace = self._pace.after(closing_s=self._p.clock.perf() - self._trained_at)
        self._lease = None
        return self._go(self._ask)

    def _abandon(self, reason: str) -> Pause:
        """Gives a lease back; the weights held are of no generation any more."""
        lease, self._lease = self._lease, None
        self._p.board.hold(None)
        if lease is not None:
            self._say(f"gave lease {lease.token} back: {reason}")
            try:
                self._p.api.release(Token(lease.token), self._session, reason[:500])
            except Refused as error:
                log.warning("%s", error)
        return self._go(self._ask)

    # -- the trainer ------------------------------------------------------------------------------------------------

    def _command(
        self,
        op: str,
        done: Callable[[dict[str, Any]], Pause],
        watch: Callable[[PhaseProgress | None], None] | None = None,
        **arguments: Any,
    ) -> Pause:
        self._p.link.submit(op, **arguments)
        return self._go(partial(self._await, op, done, watch))

    def _await(
        self,
        op: str,
        done: Callable[[dict[str, Any]], Pause],
        watch: Callable[[PhaseProgress | None], None] | None,
    ) -> Pause:
        match self._p.link.poll():
            case Done(_, value):
                return done(value)
            case Failed(error):
                return self._trainer_failed(error, op)
            case Progress(progress) if watch is not None:
                watch(progress)
            case _ if watch is not None:
                watch(None)
        return Pause(TRAINER_POLL_S)

    def _trainer_failed(self, error: CrosstrainError, op: str = "boot") -> Pause:
        """A failed trainer is replaced by a fresh one that takes up the newest checkpoint; a third failure in a row is
        the site's."""
        self._failures += 1
        if op == "restore" and isinstance(error, IntegrityError):
            log.warning("the newest checkpoint is not usable, starting with a fresh inner state: %s", error)
            return self._go(self._send_pending)
        if self._failures >= MAX_FAILURES:
            raise error
        log.error("the trainer failed at %s (%d of %d): %s", op, self._failures, MAX_FAILURES, error)
        self._p.link.close()
        reason = "its loss diverged" if isinstance(error, Diverged) else f"the trainer failed: {error.message[:200]}"
        if self._lease is not None and self._p.spool.note.pending is None:
            self._abandon(reason)
        return self._go(self._boot)

    # -- leaving ----------------------------------------------------------------------------------------------------

    def _finish(self, reason: str) -> Pause:
        self._p.board.show(Phase.DRAINING, detail=reason)
        self._say(f"leaving: {reason}")
        return Pause(0.0, over=True)

    def _left(self) -> float | None:
        return None if self._p.ends_at is None else (self._p.ends_at - self._p.clock.now()) / 1000

    def _shows(self, phase: Phase) -> Callable[[int, int], None]:
        started = self._p.clock.perf()

        def show(done: int, total: int) -> None:
            seconds = max(1e-3, self._p.clock.perf() - started)
            rate = done / seconds
            eta = f", {(total - done) / rate:.0f} s left" if rate else ""
            self._p.board.show(phase, done, total, detail=f"{rate / 1e6:.1f} MB/s{eta}")

        return show

    def _go(self, stage: Stage) -> Pause:
        self._stage = stage
        return Pause(0.0)

    def _say(self, sentence: str) -> None:
        if sentence != self._said:
            self._said = sentence
            log.info("%s", sentence)
