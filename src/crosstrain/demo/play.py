"""Plays the run: starts the processes, looks at the status, does what the fault script says, until all rounds are done."""

from __future__ import annotations

from dataclasses import dataclass

from crosstrain.assembly import RunFiles, coordinator_client
from crosstrain.clock import Clock, SystemClock, pause
from crosstrain.demo import faults
from crosstrain.demo.faults import Action, Deed, Stage
from crosstrain.demo.prepare import Wishes
from crosstrain.demo.processes import COORDINATOR, Fleet
from crosstrain.demo.watching import Fault, Frame, Watcher
from crosstrain.disk import disk_faults
from crosstrain.errors import EnvironmentFault, Unreachable
from crosstrain.wire.client import ControlClient
from crosstrain.wire.messages import StatusReply

LOOK_S = 0.25
STALL_S = 180.0
"""Without any change for so long, something hangs: a boot of the trainer, the longest silence, takes a tenth of it."""
LEAVE_S = 30.0
"""How long the sites get to measure the last generation and to leave."""


@dataclass(frozen=True, slots=True)
class Played:
    """The run's last status, and what was done to it."""

    status: StatusReply
    faults: tuple[Fault, ...]
    seconds: float


def play(files: RunFiles, wishes: Wishes, watcher: Watcher, clock: Clock | None = None) -> Played:
    """Runs the demo's processes to the end of the run; none is left when it returns or raises.

    Raises:
        EnvironmentFault: a process ended by itself, nothing moved for minutes, or the run ended before the faults did.
    """
    logs = files.path.parent / "logs"
    with disk_faults(logs):
        logs.mkdir(exist_ok=True)
    with Fleet(files.path, logs) as fleet:
        return _Play(files, wishes, fleet, watcher, clock or SystemClock()).run()


class _Play:
    def __init__(self, files: RunFiles, wishes: Wishes, fleet: Fleet, watcher: Watcher, clock: Clock) -> None:
        self._fleet = fleet
        self._watcher = watcher
        self._clock = clock
        self._client: ControlClient = coordinator_client(files.config.site.url)
        self._begun_s = clock.perf()
        self._moved_s = 0.0
        self._status: StatusReply | None = None
        self._faults: list[Fault] = []
        self._names = wishes.names
        self._script = faults.script_for(wishes.names, wishes.rounds)
        self._state = faults.begin(self._script) if wishes.faults else faults.State(Stage.OVER)

    def run(self) -> Played:
        try:
            self._fleet.start_coordinator()
            late = self._script.late if self._state.stage is Stage.LATE_SITE else None
            for name in self._names:
                if name != late:
                    self._fleet.start_site(name)
            while not self._look():
                pause(LOOK_S)
            return self._end()
        finally:
            self._client.close()

    @property
    def _now_s(self) -> float:
        return self._clock.perf() - self._begun_s

    def _look(self) -> bool:
        """One look and what follows from it; returns whether the run is over."""
        left = self._fleet.look()
        status = self._ask()
        self._state, actions = faults.advance(self._script, self._state, status, self._now_s)
        for action in actions:
            self._do(action)
        self._note_movement(status)
        self._watcher.show(Frame(self._now_s, self._status, status is not None, tuple(self._faults)))
        finished = status is not None and status.finished
        if left and not finished and status is not None:
            raise EnvironmentFault("A site left before the run was over.", "see logs/ in the demo's directory")
        return finished

    def _ask(self) -> StatusReply | None:
        try:
            return self._client.get("status", StatusReply, 0.0)
        except Unreachable:
            return None

    def _do(self, action: Action) -> None:
        match action.deed:
            case Deed.START_SITE:
                self._fleet.start_site(action.site)
            case Deed.KILL_SITE:
                self._fleet.kill(action.site)
            case Deed.START_COORDINATOR:
                self._fleet.start_coordinator()
            case Deed.KILL_COORDINATOR:
                self._fleet.kill(COORDINATOR)
        self._faults.append(Fault(round(self._now_s, 1), action.what))

    def _note_movement(self, status: StatusReply | None) -> None:
        if status is not None and (self._status is None or _standing(status) != _standing(self._status)):
            self._moved_s = self._now_s
        self._status = status or self._status
        still_s = self._now_s - self._moved_s
        if still_s > STALL_S:
            waiting = self._status.waiting if self._status else "the coordinator never answered"
            raise EnvironmentFault(
                f"Nothing has moved for {still_s:.0f} s ({waiting}).", "see logs/ in the demo's directory"
            )

    def _end(self) -> Played:
        self._fleet.await_sites(LEAVE_S)
        self._fleet.look()
        status = self._client.get("status", StatusReply, LEAVE_S)
        seconds = self._now_s
        self._watcher.show(Frame(seconds, status, True, tuple(self._faults)))
        if self._state.stage is not Stage.OVER:
            raise EnvironmentFault(
                f"The run ended while the faults still waited for {self._state.stage}.", "give more --rounds"
            )
        return Played(status, tuple(self._faults), seconds)


def _standing(status: StatusReply) -> object:
    """What changes when anything moves: not the clock, and not what is said about it."""
    sites = tuple((site.phase, site.done, site.entries, site.grants) for site in status.sites)
    return status.generation, status.blocks, sites
