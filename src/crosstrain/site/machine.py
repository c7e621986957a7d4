"""The stage machine under the agent: one short thing per step, and one trainer command at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from crosstrain.clock import Clock
from crosstrain.config import RunConfig, SiteSection
from crosstrain.domain.ids import Instant, SessionId, SiteName
from crosstrain.domain.phase import PhaseProgress
from crosstrain.domain.site import Phase
from crosstrain.domain.timeouts import TRAINER_LOOK_S
from crosstrain.errors import CrosstrainError
from crosstrain.site.courier import Beside
from crosstrain.site.heartbeat import Board
from crosstrain.site.order import BlockOrder
from crosstrain.site.spool import Spool
from crosstrain.site.trainer_link import Done, Failed, Progress, TrainerLink
from crosstrain.site.transfer_rate import with_rate
from crosstrain.wire import messages
from crosstrain.wire.blobs import Blobs
from crosstrain.wire.site_api import SiteApi

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pause:
    """How long to wait before the next step; `over` ends the agent."""

    seconds: float
    over: bool = False


Stage = Callable[[], Pause]
Answer = Callable[[dict[str, Any]], Pause]
Look = Callable[[PhaseProgress | None], None]


@dataclass(slots=True)
class Parts:
    """What an agent works with, put together by `assembly`.

    Attributes:
        begin_heartbeat: starts the heartbeats of a session.
        ends_at: when the job ends by this machine's clock, None if unknown.
        connect_s: how long the first registration is tried.
        version: crosstrain's.
        beside: where finished work is carried away while the next phase is trained; None without `round.overlap`.
    """

    config: RunConfig
    site: SiteSection
    name: SiteName
    clock: Clock
    api: SiteApi
    blobs: Blobs
    link: TrainerLink
    spool: Spool
    board: Board
    order: BlockOrder
    fingerprint: messages.Fingerprint
    begin_heartbeat: Callable[[SessionId, int], None]
    ends_at: Instant | None
    connect_s: float
    version: str
    beside: Beside | None = None

    @property
    def seconds_left(self) -> float | None:
        """Until the job's end."""
        return None if self.ends_at is None else (self.ends_at - self.clock.now()) / 1000

    def shows(self, phase: Phase) -> Callable[[int, int], None]:
        """A progress callback that puts rate and time left of a transfer on the board."""
        return with_rate(self.clock, lambda done, total, rate: self.board.show(phase, done, total, detail=rate))


class Machine:
    """Runs stages; a stage does one thing and names its successor with `go`.

    Attributes:
        session: of the coordinator, -1 before registration.
        failed: what to do when the trainer fails, given the error and the command's name.
    """

    def __init__(self, link: TrainerLink, failed: Callable[[CrosstrainError, str], Pause]) -> None:
        self._link = link
        self._failed = failed
        self._stage: Stage | None = None
        self._said = ""
        self.session = SessionId(-1)

    def step(self) -> Pause:
        assert self._stage is not None
        return self._stage()

    def go(self, stage: Stage) -> Pause:
        """Makes `stage` the next one."""
        self._stage = stage
        return Pause(0.0)

    def command(self, op: str, done: Answer, look: Look | None = None, **arguments: Any) -> Pause:
        """Gives the trainer a command of `commands.py`; `done` gets its answer, `look` every glance meanwhile."""
        self._link.submit(op, **arguments)
        return self.go(partial(self._await, op, done, look))

    def say(self, sentence: str) -> None:
        """Logs what is new."""
        if sentence != self._said:
            self._said = sentence
            log.info("%s", sentence)

    def _await(self, op: str, done: Answer, look: Look | None) -> Pause:
        progress = None
        match self._link.poll():
            case Done(_, value):
                return done(value)
            case Failed(error):
                return self._failed(error, op)
            case Progress(newest):
                progress = newest
        if look is not None:
            look(progress)
        return self.wait_for_trainer()

    def wait_for_trainer(self) -> Pause:
        """Waits a moment for the trainer's next word, without spinning and without keeping it waiting."""
        self._link.wait(TRAINER_LOOK_S)
        return Pause(0.0)
