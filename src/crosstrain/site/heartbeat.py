"""Heartbeats: a thread with a connection of its own and no lock that training or uploading could hold for long."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace

from crosstrain.clock import pause
from crosstrain.domain import timeouts
from crosstrain.domain.ids import SessionId, Token
from crosstrain.domain.site import Beat, Phase
from crosstrain.errors import CrosstrainError, Superseded, Unreachable
from crosstrain.wire import messages
from crosstrain.wire.site_api import SiteApi

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Heard:
    """What the coordinator said in its newest reply."""

    lost: frozenset[Token] = frozenset()
    drain: str = ""
    shed: bool = False
    generation: int | None = None
    over: Superseded | None = None


class Board:
    """Where the agent writes what it does, and the heartbeat what it heard. Both swap whole values."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._beat = Beat(Phase.BOOTING)
        self._token: Token | None = None
        self._kept: int | None = None
        self._sending: Token | None = None
        self._sent = 0
        self._beside = ""
        self._heard = Heard()
        self.changed = threading.Event()
        """Set when the phase changes, so that the coordinator hears of it at once."""

    def show(
        self,
        phase: Phase,
        done: int = 0,
        total: int = 0,
        loss: float | None = None,
        detail: str = "",
        blocks: int = 0,
    ) -> None:
        """Says what the agent does now; `blocks` is how many of its lease are trained."""
        with self._lock:
            new_phase = phase is not self._beat.phase
            kept_loss = self._beat.loss if loss is None else loss
            self._beat = Beat(phase, done, total, kept_loss, detail, blocks=blocks)
        if new_phase:
            self.changed.set()

    def hold(self, token: Token | None) -> None:
        """Names the lease that heartbeats are to renew."""
        with self._lock:
            self._token, self._kept = token, None

    def send(self, token: Token | None, sent: int = 0) -> None:
        """Names a second lease that heartbeats are to renew, of which so many bytes have arrived."""
        with self._lock:
            self._sending, self._sent = token, sent

    @property
    def sending(self) -> tuple[Token | None, int]:
        """What is sent beside the work that the board shows."""
        with self._lock:
            return self._sending, self._sent

    @property
    def beside(self) -> str:
        """What is carried beside the work that the board shows, and how fast: a short text for people."""
        return self._beside

    @beside.setter
    def beside(self, text: str) -> None:
        self._beside = text

    @property
    def asked_to_shed(self) -> bool:
        """Whether the coordinator asked for a part of the lease and got no answer yet."""
        with self._lock:
            return self._heard.shed and self._kept is None

    def shed(self, token: Token, kept: int) -> None:
        """Answers: of this lease, only the first `kept` blocks are kept."""
        with self._lock:
            if self._token == token:
                self._kept = kept
        self.changed.set()

    @property
    def heard(self) -> Heard:
        with self._lock:
            return self._heard

    def outgoing(self) -> tuple[Beat, Token | None, int | None]:
        """What the next heartbeat says: the beat, the lease held, and how many of its blocks are kept."""
        with self._lock:
            return self._beat, self._token, self._kept

    def take(self, reply: messages.BeatReply, token: Token | None) -> None:
        with self._lock:
            lost = self._heard.lost | ({token} if token is not None and not reply.lease_alive else frozenset())
            drain = reply.reason if reply.drain else ""
            shed = reply.shed and token == self._token
            if not reply.shed:
                self._kept = None
            self._heard = Heard(lost, drain, shed, reply.generation, self._heard.over)

    def end(self, error: Superseded) -> None:
        with self._lock:
            self._heard = replace(self._heard, over=error)


class Heartbeat:
    """Beats for one session.

    Args:
        spread: numbers in [0, 1), from the caller's generator, so that many sites do not beat in step.
    """

    def __init__(self, api: SiteApi, session: SessionId, interval_ms: int, board: Board, spread: float) -> None:
        self._api = api
        self._session = session
        self._interval_s = interval_ms / 1000
        self._board = board
        self._spread = spread
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._board.changed.set()
        self._thread.join(timeouts.BEAT_ENDS_S)

    @property
    def stopped(self) -> bool:
        """Whether the session is over."""
        return self._stopping.is_set()

    def step(self) -> None:
        """Sends one heartbeat; an outage is not an error here, the lease's TTL is made for it."""
        beat, token, kept = self._board.outgoing()
        sending, sent = self._board.sending
        request = messages.BeatRequest(
            phase=beat.phase,
            done=beat.done,
            total=beat.total,
            token=token,
            blocks=beat.blocks,
            kept=kept,
            loss=beat.loss,
            detail=beat.detail,
            rtt_ms=self._api.rtt_ms,
            sending=sending,
            sent=sent,
            beside=self._board.beside,
        )
        try:
            deadline_s = timeouts.beat_s(self._interval_s, self._api.rtt_ms / 1000)
            reply = self._api.beat(self._session, request, deadline_s)
        except Superseded as error:
            self._board.end(error)
            self._stopping.set()
        except Unreachable as error:
            log.warning("%s", error.message)
        except CrosstrainError as error:
            log.error("heartbeat: %s", error)
        else:
            self._board.take(reply, token)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._board.changed.clear()
            self.step()
            pause(self._interval_s * (0.8 + 0.2 * self._spread), self._board.changed)
