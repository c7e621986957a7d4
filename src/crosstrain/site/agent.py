"""The site agent: a small machine of stages, driven by step().

    register -> boot -> (restore) -> (send pending work) -> ask
    ask -> initialise | adopt | evaluate | train | wait | finished -> ask

Each step does one short thing and says how long to pause; the trainer works in processes of its own meanwhile. What must
survive a crash is in the spool before it is announced.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from crosstrain.domain import timeouts
from crosstrain.domain.ids import Digest, Generation, SessionId, Token
from crosstrain.domain.site import Phase
from crosstrain.errors import CrosstrainError, Diverged, IntegrityError, Refused
from crosstrain.site.adoption import MISSING, fetch
from crosstrain.site.courier import Courier, hand_over
from crosstrain.site.inner_phase import InnerPhase
from crosstrain.site.machine import Machine, Parts, Pause, Stage
from crosstrain.site.overlap import Overlap
from crosstrain.site.phase_ahead import PhaseAhead
from crosstrain.site.trainer_link import Failed, Ready
from crosstrain.site.walltime import blocks_that_fit, may_begin
from crosstrain.wire import messages

log = logging.getLogger(__name__)

MAX_FAILURES = 3
"""Trainer failures in a row, without a contribution between them, after which the site gives up."""


class Agent:
    """One session of a site, from registration to its end.

    Attributes:
        parting: why it leaves, as the coordinator is to be told.
    """

    def __init__(self, parts: Parts) -> None:
        self._p = parts
        self._machine = Machine(parts.link, self._trainer_failed)
        self._phase = _phases(parts, self._machine, self._ask)
        self._holds: Generation | None = None
        self._base: Digest | None = None
        self._missed: str | None = None
        self._failures = 0
        self._contributed = 0
        self.parting = "it failed"
        self._kept: dict[int, messages.LeaseInfo] = {}
        self._machine.go(self._register)

    @property
    def stop_reason(self) -> str:
        """Why the site is to drain and leave; set from outside, by a signal. Empty: it goes on."""
        return self._phase.stop_reason

    @stop_reason.setter
    def stop_reason(self, reason: str) -> None:
        self._phase.stop_reason = reason

    @property
    def registered(self) -> bool:
        """Whether the coordinator knows this session."""
        return self._machine.session >= 0

    def step(self) -> Pause:
        """Does the next short thing.

        Raises:
            CrosstrainError: the session cannot go on; the reason is in the message.
        """
        over = self._p.board.heard.over
        if over is not None:
            raise over
        left = self._p.seconds_left
        if left is not None:
            self._p.api.deadline_s = max(1.0, left)
        return self._machine.step()

    def leave(self, reason: str) -> None:
        """Ends the session at the coordinator, so that its blocks are free at once. Failing to is not an error: they are
        free after their time to live."""
        if not self.registered:
            return
        try:
            self._p.api.end(self._machine.session, reason, timeouts.LEAVE_S)
        except CrosstrainError as error:
            log.warning("could not say goodbye: %s", error.message)

    # -- coming -----------------------------------------------------------------------------------------------------

    def _register(self) -> Pause:
        pending, partial = self._p.spool.note.pending, self._p.spool.note.partial
        request = messages.RegisterRequest(
            protocol=messages.PROTOCOL,
            version=self._p.version,
            site=self._p.name,
            ranks=self._p.site.ranks,
            windows_per_step=self._p.site.windows_per_step,
            fingerprint=self._p.fingerprint,
            inner_state="restored" if self._p.spool.newest_checkpoint() else "fresh",
            holding=tuple(work.token for work in (pending, partial and partial.lease) if work),
        )
        reply = self._p.api.register(request, self._p.connect_s)
        self._machine.session = SessionId(reply.session)
        self._machine.say(f"session {reply.session} of run {reply.run}, inner state {request.inner_state}")
        self._kept = {lease.token: lease for lease in reply.kept}
        if reply.kept:
            self._p.board.hold(Token(reply.kept[0].token))
        if pending and pending.token not in self._kept:
            self._machine.say(f"the work of lease {pending.token} came too late; its blocks were given back")
            self._p.spool.forget("unknown")
        self._p.begin_heartbeat(self._machine.session, reply.heartbeat_ms)
        return self._machine.go(self._boot)

    def _boot(self) -> Pause:
        self._p.board.show(Phase.BOOTING, detail="starting the trainer")
        self._holds = None
        self._p.link.start()
        return self._machine.go(self._await_ready)

    def _await_ready(self) -> Pause:
        match self._p.link.poll():
            case Ready():
                checkpoint = self._p.spool.checkpoint_to_restore()
                if checkpoint is None:
                    return self._machine.go(self._take_up)
                return self._machine.command("restore", self._restored, directory=str(checkpoint))
            case Failed(error):
                return self._trainer_failed(error, "its start")
        return self._finish(self.stop_reason) if self.stop_reason else self._machine.wait_for_trainer()

    def _restored(self, _value: dict[str, Any]) -> Pause:
        self._machine.say("inner optimiser state restored")
        return self._machine.go(self._take_up)

    def _take_up(self) -> Pause:
        """Goes on where an earlier session of this site was interrupted."""
        beside = self._phase.before_asking()  # what is on its way already, since before the trainer failed
        if beside is not None:
            return beside
        note = self._p.spool.note
        if note.pending:
            return self._machine.go(self._phase.send_pending)
        if note.partial and note.partial.lease.token in self._kept:
            return self._phase.resume(self._kept[note.partial.lease.token], note.partial)
        return self._machine.go(self._ask)

    # -- asking -----------------------------------------------------------------------------------------------------

    def _ask(self) -> Pause:
        beside = self._phase.before_asking()
        if beside is not None:
            return beside
        self._p.board.hold(None)
        left, pace, margin = self._p.seconds_left, self._phase.pace, self._p.site.margin_s
        enough = may_begin(left, pace, margin)
        if self.stop_reason or not enough:
            return self._finish(self.stop_reason or enough.reason)
        partial = self._p.spool.note.partial
        request = messages.NextRequest(
            holds=self._holds,
            max_blocks=blocks_that_fit(left, pace, margin),
            resume=None if partial is None else partial.lease,
        )
        reply = self._p.api.next_work(self._machine.session, request)
        self._machine.say(f"{reply.work}: {reply.reason}")
        match reply.work:
            case "initialise":
                return self._initialise()
            case "adopt":
                return self._adopt(reply)
            case "evaluate":
                self._p.board.show(Phase.EVALUATING)
                windows = self._p.config.heldout.windows
                return self._machine.command("evaluate", self._evaluated, windows=windows)
            case "resume":
                assert reply.lease is not None and partial is not None
                return self._phase.resume(reply.lease, partial)
            case "train":
                assert reply.lease is not None and self._base is not None
                self._holds = None  # from here on the weights are of no generation
                return self._phase.train(reply.lease, self._base)
            case "wait":
                self._p.board.show(Phase.WAITING, detail=reply.reason)
                return Pause(reply.poll_ms / 1000)
            case "finished":
                return self._finish(reply.reason)

    def _initialise(self) -> Pause:
        self._p.board.show(Phase.INITIALISING)
        path = self._p.spool.directory / "initial.safetensors"
        seed = self._p.config.run.seed
        return self._machine.command("initialise", self._initialised, seed=seed, path=str(path))

    def _initialised(self, value: dict[str, Any]) -> Pause:
        path, digest = self._p.spool.directory / "initial.safetensors", Digest(value["digest"])
        api, session, request = self._p.api, self._machine.session, messages.InitialRequest(weights=digest)
        shows = self._p.shows(Phase.INITIALISING)
        hand_over(api, self._p.blobs, path, digest, shows, lambda: api.initial(session, request))
        path.unlink()
        return self._machine.go(self._ask)

    def _adopt(self, reply: messages.NextReply) -> Pause:
        assert reply.generation is not None and reply.weights is not None
        self._p.board.show(Phase.ADOPTING)
        self._p.spool.forget_partial()  # its weights are about to be replaced
        weights = Digest(reply.weights)
        packed = None if reply.packed is None else Digest(reply.packed)
        shows, known = self._p.shows(Phase.ADOPTING), self._p.spool.base(weights).exists()
        try:
            path = fetch(self._p.blobs, self._p.spool, weights, packed, self._p.api.deadline_s, shows)
        except Refused as error:
            if error.kind != MISSING:
                raise
            return self._ask_what_is_current(reply, error)
        if not known:
            self._p.spool.drop_other_bases(weights)
        done = partial(self._adopted, Generation(reply.generation), weights)
        fresh = (
            self._p.spool.newest_checkpoint() is None
        )  # there was none yet, or what it held is not to be gone on with
        return self._machine.command("load", done, path=str(path), generation=reply.generation, fresh=fresh)

    def _ask_what_is_current(self, reply: messages.NextReply, error: Refused) -> Pause:
        """A generation that took long to fetch may have been removed meanwhile, for newer ones. If there is none, whoever runs the
        coordinator has to put its blob back, and time passes."""
        if self._missed != reply.weights:
            self._missed = reply.weights
            log.warning("generation %s cannot be fetched: %s Asking what is current.", reply.generation, error.message)
        self._p.board.show(Phase.WAITING, detail=error.message)
        return Pause(reply.poll_ms / 1000)

    def _adopted(self, generation: Generation, weights: Digest, _value: dict[str, Any]) -> Pause:
        self._holds, self._base = generation, weights
        return self._machine.go(self._ask)

    def _evaluated(self, value: dict[str, Any]) -> Pause:
        assert self._holds is not None
        if value["tokens"] > 0:
            request = messages.EvaluationRequest(generation=self._holds, nll=value["nll"], tokens=value["tokens"])
            self._p.api.evaluation(self._machine.session, request)
        return self._machine.go(self._ask)

    # -- trouble and leaving ----------------------------------------------------------------------------------------

    def _trainer_failed(self, error: CrosstrainError, op: str) -> Pause:
        """A failed trainer is replaced by a fresh one that takes up the newest checkpoint; the third failure without a
        contribution between them is the site's."""
        if op == "restore" and isinstance(error, IntegrityError) and self._p.link.alive:
            log.warning("the newest checkpoint is not usable, starting with a fresh inner state: %s", error)
            self._p.spool.forget_partial()
            return self._machine.go(self._take_up)
        self._failures = 1 if self._phase.contributed > self._contributed else self._failures + 1
        self._contributed = self._phase.contributed
        if self._failures >= MAX_FAILURES:
            raise error
        log.error("the trainer failed at %s (%d of %d): %s", op, self._failures, MAX_FAILURES, error)
        self._p.link.close()
        diverged = isinstance(error, Diverged)
        self._phase.abandon("its loss diverged" if diverged else f"the trainer failed: {error.message}")
        return self._machine.go(self._boot)

    def _finish(self, reason: str) -> Pause:
        self._p.board.show(Phase.DRAINING, detail=reason)
        self._machine.say(f"leaving: {reason}")
        self.parting = reason
        return Pause(0.0, over=True)


def _phases(parts: Parts, machine: Machine, after: Stage) -> InnerPhase:
    """How leases are trained: one after the other, or with overlap."""
    if parts.beside is None:
        return InnerPhase(parts, machine, after)
    courier = Courier(parts.beside, parts.board, parts.spool, parts.clock)
    return PhaseAhead(parts, machine, after, Overlap(courier, parts, machine))
