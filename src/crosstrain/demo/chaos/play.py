"""Plays a plan of faults against real processes: bad weather for the given time, then good weather, then a drain."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crosstrain.assembly import RunFiles, coordinator_client
from crosstrain.clock import Clock, SystemClock, pause
from crosstrain.demo.chaos.forwarder import Network
from crosstrain.demo.chaos.plan import Fault, Kind
from crosstrain.demo.chaos.prepare import Wishes
from crosstrain.demo.processes import COORDINATOR, Fleet, Part
from crosstrain.demo.watching import Fault as Told
from crosstrain.demo.watching import Frame, Watcher
from crosstrain.disk import disk_faults
from crosstrain.errors import EnvironmentFault, Unreachable
from crosstrain.wire.messages import StatusReply

LOOK_S = 0.1
ASK_S = 1.0
CALM_S = 180.0
"""How long the run gets in good weather for two further generations: leases that hang from before have to lapse first."""
CALM_GENERATIONS = 2
DRAIN_S = 60.0
GAVE_UP = EnvironmentFault.exit_code
"""Of a site whose trainer failed three times in a row, as it does when it is killed three times."""
KILLS_TO_GIVE_UP = 3

PARTS = {Kind.KILL_TRAINER: Part.TRAINER, Kind.STOP_TRAINER: Part.TRAINER, Kind.STOP: Part.WHOLE}


@dataclass(frozen=True, slots=True)
class Played:
    """The run's last status, what was done to it, and what should not have happened."""

    status: StatusReply
    faults: tuple[Told, ...]
    seconds: float
    problems: tuple[str, ...]


def play(files: RunFiles, wishes: Wishes, network: Network, watcher: Watcher, clock: Clock | None = None) -> Played:
    """Runs the processes through the plan of `wishes`; none is left when it returns or raises.

    Raises:
        EnvironmentFault: the coordinator never answered.
    """
    logs = files.path.parent / "logs"
    with disk_faults(logs):
        logs.mkdir(exist_ok=True)
    with Fleet(files.path, logs) as fleet:
        return _Play(files, wishes, network, fleet, watcher, clock or SystemClock()).run()


class _Play:
    def __init__(
        self, files: RunFiles, wishes: Wishes, network: Network, fleet: Fleet, watcher: Watcher, clock: Clock
    ) -> None:
        self._wishes = wishes
        self._network = network
        self._fleet = fleet
        self._watcher = watcher
        self._clock = clock
        self._client = coordinator_client(f"http://127.0.0.1:{files.config.coordinator.port}")
        self._begun_s = clock.perf()
        self._asked_s = 0.0
        self._status: StatusReply | None = None
        self._told: list[Told] = []
        self._problems: list[str] = []
        self._under_way: list[Fault] = []
        self._coordinator_hears = False
        self._restarts: dict[str, float] = {}
        self._leaving: set[str] = set()
        self._trainer_kills = dict.fromkeys(wishes.names, 0)

    def run(self) -> Played:
        try:
            self._start(COORDINATOR)
            for name in self._wishes.names:
                self._start(name)
            self._storm(self._wishes.plan)
            self._calm()
            return self._drain()
        finally:
            self._client.close()

    # -- the three parts --------------------------------------------------------------------------------------------

    def _storm(self, plan: Sequence[Fault]) -> None:
        coming = list(plan)
        while self._now_s < self._wishes.seconds and not self._finished:
            while coming and coming[0].at_s <= self._now_s:
                self._begin(coming.pop(0))
            self._look()
        for fault in tuple(self._under_way):
            self._undo(fault)

    def _calm(self) -> None:
        self._tell("the weather is good from here on")
        goal = self._generation + CALM_GENERATIONS
        if not self._wait(CALM_S, lambda: self._generation >= goal or self._finished):
            waiting = self._status.waiting if self._status else "the coordinator never answered"
            self._problems.append(
                f"no progress: in {CALM_S:.0f} s of good weather the run came from generation "
                f"{goal - CALM_GENERATIONS} to {self._generation} ({waiting})"
            )

    def _drain(self) -> Played:
        if self._status is None:
            raise EnvironmentFault("The coordinator never answered.", "see logs/ in the run's directory")
        self._tell("all sites are asked to drain")
        for name in self._fleet.sites:
            self._ask_to_leave(name)
        self._restarts.clear()
        if not self._wait(DRAIN_S, lambda: not self._fleet.sites, draining=True):
            self._problems.append(f"not drained within {DRAIN_S:.0f} s: {', '.join(self._fleet.sites)}")
        self._ask()
        status, seconds = self._status, self._now_s
        if self._fleet.running(COORDINATOR):
            self._fleet.send(COORDINATOR, signal.SIGTERM)
            self._wait(DRAIN_S, lambda: not self._fleet.running(COORDINATOR), draining=True)
        return Played(status, tuple(self._told), seconds, tuple(self._problems))

    # -- faults -----------------------------------------------------------------------------------------------------

    def _begin(self, fault: Fault) -> None:
        if not self._fleet.running(fault.target) or fault.target in self._leaving:
            # A second SIGTERM would make a site give up on the network, which is another promise.
            self._tell(f"(not done, for it is not there, or about to leave: {fault.sentence})")
            return
        if not self._strike(fault):
            self._tell(f"(not done, for there is no trainer yet: {fault.sentence})")
            return
        self._tell(fault.sentence)
        if fault.seconds:
            self._under_way.append(fault)

    def _strike(self, fault: Fault) -> bool:
        name = fault.target
        if name == COORDINATOR:
            self._coordinator_hears = False
        match fault.kind:
            case Kind.KILL | Kind.KILL_COORDINATOR:
                self._fleet.kill(name)
            case Kind.KILL_TRAINER:
                self._trainer_kills[name] += 1
                return self._fleet.send(name, signal.SIGKILL, Part.TRAINER)
            case Kind.STOP | Kind.STOP_TRAINER | Kind.STOP_COORDINATOR:
                return self._fleet.send(name, signal.SIGSTOP, PARTS.get(fault.kind, Part.AGENT))
            case Kind.KILL_AGENT:
                self._fleet.send(name, signal.SIGKILL)
            case Kind.DRAIN:
                self._ask_to_leave(name)
            case Kind.CUT:
                self._network.cut(name)
            case Kind.SWALLOW:
                self._network.swallow(name)
            case Kind.RESET:
                self._network.reset(name)
        return True

    def _ask_to_leave(self, name: str) -> None:
        if name not in self._leaving:
            self._leaving.add(name)
            self._fleet.send(name, signal.SIGTERM)

    def _undo(self, fault: Fault) -> None:
        self._under_way.remove(fault)
        match fault.kind:
            case Kind.KILL | Kind.KILL_AGENT | Kind.KILL_COORDINATOR | Kind.DRAIN:
                self._restarts[fault.target] = self._now_s
            case Kind.STOP | Kind.STOP_TRAINER | Kind.STOP_COORDINATOR:
                self._fleet.go_on(fault.target)
                self._coordinator_hears |= fault.target == COORDINATOR
            case Kind.CUT | Kind.SWALLOW:
                self._network.heal(fault.target)

    def _start(self, name: str) -> None:
        if name == COORDINATOR:
            self._fleet.start_coordinator()
            self._coordinator_hears = True
        else:
            self._trainer_kills[name] = 0
            self._fleet.start_site(name)

    # -- looking ----------------------------------------------------------------------------------------------------

    def _wait(self, seconds: float, done: Callable[[], bool], draining: bool = False) -> bool:
        deadline_s = self._now_s + seconds
        while self._now_s < deadline_s:
            self._look(draining)
            if done():
                return True
        return False

    def _look(self, draining: bool = False) -> None:
        for fault in [fault for fault in self._under_way if fault.ends_s <= self._now_s]:
            self._undo(fault)
        for name, code in self._fleet.ended().items():
            self._note_end(name, code, draining)
        for name in [name for name, at_s in self._restarts.items() if at_s <= self._now_s]:
            # One that drains is started again when it has left.
            if not self._fleet.running(name):
                del self._restarts[name]
                self._start(name)
        if self._coordinator_hears and self._now_s - self._asked_s >= ASK_S:
            self._ask()
        self._watcher.show(Frame(self._now_s, self._status, self._coordinator_hears, tuple(self._told)))
        pause(LOOK_S)

    def _note_end(self, name: str, code: int, draining: bool) -> None:
        self._leaving.discard(name)
        if name == COORDINATOR:
            if not (draining and code in (0, -signal.SIGTERM)):
                self._problems.append(self._fleet.obituary(name, code))
                self._restarts[name] = self._now_s
            return
        asked = any(f.target == name and f.kind in (Kind.KILL_AGENT, Kind.DRAIN) for f in self._under_way)
        if draining or asked or name in self._restarts or self._finished:
            # Killed by us, left in order, or asked to before it could listen to signals.
            if code not in (0, -signal.SIGKILL, -signal.SIGTERM):
                self._problems.append(self._fleet.obituary(name, code))
            return
        self._restarts[name] = self._now_s
        if code == GAVE_UP and self._trainer_kills[name] >= KILLS_TO_GIVE_UP:
            self._tell(
                f"{name} gave up after its trainer was killed {self._trainer_kills[name]} times; its next job starts"
            )
        else:
            self._problems.append(self._fleet.obituary(name, code))

    def _ask(self) -> None:
        self._asked_s = self._now_s
        try:
            self._status = self._client.get("status", StatusReply, 0.0)
        except Unreachable:
            return  # it is starting

    def _tell(self, what: str) -> None:
        self._told.append(Told(round(self._now_s, 1), what))

    @property
    def _now_s(self) -> float:
        return self._clock.perf() - self._begun_s

    @property
    def _generation(self) -> int:
        return (self._status.generation or 0) if self._status else 0

    @property
    def _finished(self) -> bool:
        return self._status is not None and self._status.finished
