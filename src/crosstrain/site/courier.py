"""Carries a finished phase to the coordinator, and the generation that follows back, beside the trainer (`round.overlap`).

    upload -> contribute -> (Answered) -> wait for the merge -> download -> (Arrived)

It runs on its own connections. What it finds out it leaves for the agent, which alone changes the note and the trainer.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from crosstrain.clock import Clock
from crosstrain.domain.contribution import OF_CONTENT
from crosstrain.domain.ids import Digest, Generation, SessionId, Token
from crosstrain.errors import Refused
from crosstrain.site.adoption import MISSING, fetch
from crosstrain.site.heartbeat import Board
from crosstrain.site.spool import Fate, Pending, Spool
from crosstrain.site.transfer_rate import with_rate
from crosstrain.wire import messages
from crosstrain.wire.blobs import Blobs, Progress
from crosstrain.wire.site_api import SiteApi

log = logging.getLogger(__name__)

Reply = TypeVar("Reply")
LONGEST_REASON = 500
"""Characters of a reason that is sent along."""

FINAL_REFUSALS = ("wrong-", "contributed-already", "unknown-lease", "integrity")
"""Kinds of refusal, by how they begin, that no repetition of the same contribution can change."""
DROPPED = "dropped"
"""Kind of refusal of what would follow work that was accepted and is lost."""


@dataclass(frozen=True, slots=True)
class Beside:
    """Where a courier works.

    Attributes:
        api, blobs: with connections of their own.
        run: begins an errand that takes its course beside the caller.
        wait: passes seconds there; returns True if the process is about to end.
    """

    api: SiteApi
    blobs: Blobs
    run: Callable[[Callable[[], None]], None]
    wait: Callable[[float], bool]

    def close(self) -> None:
        self.api.close()
        self.blobs.close()


def in_a_thread(errand: Callable[[], None]) -> None:
    """Runs an errand beside the caller; it ends with the process at the latest."""
    threading.Thread(target=errand, name="courier", daemon=True).start()


@dataclass(frozen=True, slots=True)
class Answered:
    """The coordinator judged the contribution."""

    fate: Fate
    sentence: str


@dataclass(frozen=True, slots=True)
class Arrived:
    """The next generation is on the site's disk.

    Attributes:
        measure: its held-out measure is wanted from this session.
    """

    generation: Generation
    weights: Digest
    global_step: int
    measure: bool


def hand_over(
    api: SiteApi, blobs: Blobs, path: Path, digest: Digest, progress: Progress, tell: Callable[[], Reply]
) -> Reply:
    """Uploads a blob and tells the coordinator of it; once more if it lost the blob in between, to damage or because nothing
    referred to it for too long."""
    blobs.upload(path, digest, api.deadline_s, progress)
    try:
        return tell()
    except Refused as error:
        if error.kind != MISSING:
            raise
        log.warning("%s Sending it again.", error.message)
    blobs.upload(path, digest, api.deadline_s, progress)
    return tell()


def deliver(
    api: SiteApi, blobs: Blobs, delta: Path, pending: Pending, session: SessionId, progress: Progress
) -> Answered:
    """Uploads finished work and contributes it.

    Raises:
        Refused: of a kind that is no judgement of the work, a login page of a proxy for example: it stays in the spool.
        CrosstrainError: the coordinator was not reached in time, or the session is over.
    """
    request = pending.contribution.model_copy(update={"session": session})
    contribute = partial(_contribute, api, Token(pending.token), request)
    return hand_over(api, blobs, delta, Digest(request.delta), progress, contribute)


def _contribute(api: SiteApi, token: Token, request: messages.ContributionRequest) -> Answered:
    try:
        reply = api.contribute(token, request)
    except Refused as error:
        if not error.kind.startswith(FINAL_REFUSALS):
            raise
        api.release(token, SessionId(request.session), f"refused: {error.message}"[:LONGEST_REASON])
        return Answered("refused", f"contribution of lease {token} refused: {error}")
    if reply.accepted:
        return Answered("accepted", f"contribution of lease {token} accepted: {reply.reason}")
    refused = f"contribution of lease {token} refused: {reply.reason}"
    if reply.kind in OF_CONTENT:
        return Answered("unusable", f"{refused}; the next phase begins with a fresh inner state")
    return Answered("refused", refused)


class Courier:
    """One errand at a time.

    Attributes:
        under_way: whether there is an errand whose end was not told yet.
    """

    def __init__(self, beside: Beside, board: Board, spool: Spool, clock: Clock) -> None:
        self._beside = beside
        self._board = board
        self._spool = spool
        self._clock = clock
        self._errand = 0
        self._missed: Digest | None = None
        self._news: deque[tuple[int, Answered | Arrived | Exception]] = deque()
        self.under_way = False

    def carry(self, session: SessionId, pending: Pending) -> None:
        """Begins an errand; its news come in order: Answered, then Arrived if the work was accepted, or Answered once more if it does
        not count after all."""
        self._errand += 1
        self.under_way = True
        errand, token = self._errand, Token(pending.token)
        self._board.send(token)
        self._beside.run(lambda: self._work(errand, session, pending))

    def news(self, deadline_s: float) -> Answered | Arrived | None:
        """The next news, or None.

        Args:
            deadline_s: how long requests of the errand are repeated from now on.

        Raises:
            CrosstrainError: the errand failed; the work is in the spool still, unless it was answered.
        """
        self._beside.api.deadline_s = deadline_s
        while self._news:
            errand, found = self._news.popleft()
            if errand != self._errand or not self.under_way:
                continue
            if isinstance(found, Answered):
                self._board.send(None)
            self.under_way = isinstance(found, Answered) and found.fate == "accepted"
            if isinstance(found, Exception):
                raise found
            return found
        return None

    def cancel(self) -> None:
        """Nobody waits for the rest of the errand any more."""
        self.under_way = False

    def _work(self, errand: int, session: SessionId, pending: Pending) -> None:
        try:
            answered = self._deliver(session, pending)
            self._news.append((errand, answered))
            if answered.fate == "accepted":
                follows = self._fetch(errand, session, Token(pending.token))
                if follows is not None:
                    self._news.append((errand, follows))
        except Exception as error:  # noqa: BLE001 - raised by news()
            self._news.append((errand, error))
        finally:
            self._board.beside = ""

    def _deliver(self, session: SessionId, pending: Pending) -> Answered:
        token, beside = Token(pending.token), self._beside

        def show(done: int, total: int, rate: str) -> None:
            self._board.send(token, done)
            self._tell("upload", done, total, rate)

        progress = with_rate(self._clock, show)
        return deliver(beside.api, beside.blobs, self._spool.delta, pending, session, progress)

    def _tell(self, what: str, done: int, total: int, rate: str) -> None:
        self._board.beside = f"{what} {done / 1e6:.1f} of {total / 1e6:.1f} MB, {rate}"

    def _fetch(self, errand: int, session: SessionId, token: Token) -> Arrived | Answered | None:
        request = messages.NextRequest(holds=None, ahead=messages.Ahead(token=token))
        while True:
            try:
                reply = self._beside.api.next_work(session, request)
            except Refused as error:
                if error.kind != DROPPED:
                    raise
                return Answered("refused", error.message)
            if reply.work == "adopt" and (arrived := self._arrive(reply)) is not None:
                return arrived
            if self._beside.wait(reply.poll_ms / 1000) or errand != self._errand or not self.under_way:
                return None

    def _arrive(self, reply: messages.NextReply) -> Arrived | None:
        """Fetches the generation; None if it was removed meanwhile, for newer ones."""
        assert reply.generation is not None and reply.weights is not None and reply.global_step is not None
        weights, deadline_s = Digest(reply.weights), self._beside.api.deadline_s
        packed = None if reply.packed is None else Digest(reply.packed)
        progress = with_rate(self._clock, partial(self._tell, "download"))
        try:
            fetch(self._beside.blobs, self._spool, weights, packed, deadline_s, progress)
        except Refused as error:
            if error.kind != MISSING:
                raise
            if self._missed != weights:
                self._missed = weights
                log.warning(
                    "generation %s cannot be fetched: %s Asking what is current.", reply.generation, error.message
                )
            return None
        return Arrived(Generation(reply.generation), weights, reply.global_step, reply.measure)
