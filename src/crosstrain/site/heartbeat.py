"""Heartbeats: a thread with a connection of its own and no lock that training or uploading could hold for long."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace

from crosstrain.clock import pause
from crosstrain.domain.ids import SessionId, Token
from crosstrain.domain.site import Beat, Phase
from crosstrain.errors import CrosstrainError, Superseded, Unreachable
from crosstrain.wire import messages
from crosstrain.wire.site_api import SiteApi

log = logging.getLogger(__name__)

BEAT_DEADLINE_S = 5.0
"""How long one heartbeat is retried; the next one says more than its repetition would."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What the coordinator said in its newest reply."""

    lost: frozenset[Token] = frozenset()
    drain: str = ""
    generation: int | None = None
    over: Superseded | None = None


class Board:
    """Where the agent writes what it does, and the heartbeat what it heard. Both swap whole values."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._beat = Beat(Phase.BOOTING)
        self._token: Token | None = None
        self._heard = Heard()
        self.changed = threading.Event()
        """Set when the phase changes, so that the coordinator hears of it at once."""

    def show(self, phase: Phase, done: int = 0, total: int = 0, loss: float | None = None, detail: str = "") -> None:
        """Says what the agent does now."""
        with self._lock:
            new_phase = phase is not self._beat.phase
            self._beat = Beat(phase, done, total, self._beat.loss if loss is None else loss, detail)
        if new_phase:
            self.changed.set()

    def hold(self, token: Token | None) -> None:
        """Names the lease that heartbeats are to renew."""
        with self._lock:
            self._token = token

    @property
    def heard(self) -> Heard:
        with self._lock:
            return self._heard

    def outgoing(self) -> tuple[Beat, Token | None]:
        with self._lock:
            return self._beat, self._token

    def take(self, reply: messages.BeatReply, token: Token | None) -> None:
        with self._lock:
            lost = self._heard.lost | ({token} if token is not None and not reply.lease_alive else frozenset())
            self._heard = Heard(lost, reply.reason if reply.drain else "", reply.generation, self._heard.over)

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
        self._thread.join(BEAT_DEADLINE_S + 1)

    def step(self) -> None:
        """Sends one heartbeat; an outage is not an error here, the lease's TTL is made for it."""
        beat, token = self._board.outgoing()
        request = messages.BeatRequest(
            phase=beat.phase,
            done=beat.done,
            total=beat.total,
            token=token,
            loss=beat.loss,
            detail=beat.detail,
            rtt_ms=self._api.rtt_ms,
        )
        try:
            reply = self._api.beat(self._session, request, min(BEAT_DEADLINE_S, self._interval_s))
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
