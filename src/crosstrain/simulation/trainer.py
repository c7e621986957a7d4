"""A trainer whose steps take virtual time, and the record of what it really trained."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from crosstrain.domain.ids import Digest, Instant
from crosstrain.domain.phase import PhaseProgress, PhaseResult, window_numbers
from crosstrain.errors import CrosstrainError, EnvironmentFault
from crosstrain.simulation.world import Actor
from crosstrain.site.commands import ANSWERED, error_from_json, error_to_json, perform, plan_from_json
from crosstrain.site.counting import CountingTrainer
from crosstrain.site.trainer_link import Done, Failed, LinkEvent, Progress, Ready
from crosstrain.storage.object_store import digest_file

BOOT_S = 8.0
EXPORTS = "exports"


class Exports:
    """What is in each delta: digest -> the windows that were fed to the model since its base was loaded, or since the phase
    began ahead of its base, in order."""

    def __init__(self) -> None:
        self.windows: dict[Digest, tuple[int, ...]] = {}


class SimulatedLink:
    """A `TrainerLink` to a counting trainer on the world's clock: `poll` sleeps until there is something to tell.

    Args:
        actor: the agent's.
        step_s: how long an optimiser step takes.
        stuck_until: no step ends before this instant.
    """

    def __init__(
        self, actor: Callable[[], Actor], now: Callable[[], Instant], step_s: float, seq_len: int, exports: Exports
    ) -> None:
        self._actor = actor
        self._now = now
        self._step_s = step_s
        self._seq_len = seq_len
        self._exports = exports
        self._events: deque[LinkEvent] = deque()
        self._trainer: CountingTrainer | None = None
        self._fed: list[int] = []
        self._fed_saved: dict[str, list[int]] = {}
        self._command: dict[str, Any] | None = None
        self._steps: Generator[PhaseProgress, bool, PhaseResult] | None = None
        self._plan_windows: list[int] = []
        self._stop = False
        self._dead = False
        self.stuck_until = Instant(0)

    @property
    def alive(self) -> bool:
        return self._trainer is not None and not self._dead

    def start(self) -> None:
        self._trainer, self._dead, self._command, self._steps = None, False, None, None
        self._events.clear()

    def submit(self, op: str, **arguments: Any) -> None:
        self._command = {"op": op, **arguments}
        self._stop = False

    def request_stop(self) -> None:
        self._stop = True

    def die(self) -> None:
        """The trainer's processes are gone; the agent lives."""
        self._dead = True

    def close(self) -> None:
        self._trainer = None
        self._events.clear()

    def wait(self, seconds: float) -> None:
        """Does nothing: `poll` itself sleeps."""

    def poll(self) -> LinkEvent | None:
        if self._dead:
            op = self._command["op"] if self._command else None
            self._command, self._steps, self._dead, self._trainer = None, None, False, None
            return Failed(EnvironmentFault("The trainer ended by signal SIGKILL."), op)
        if self._trainer is None:
            self._actor().sleep(BOOT_S)
            self._trainer, self._fed = CountingTrainer(self._seq_len), []
            return Ready(self._trainer.manifest, self._trainer.position)
        if self._command is None:
            return None
        try:
            return self._run() if self._command["op"] == "run" else self._perform()
        except ANSWERED as error:
            op, self._command, self._steps = self._command["op"], None, None
            known = error if isinstance(error, CrosstrainError) else error_from_json(error_to_json(error))
            return Failed(known, op)

    def _perform(self) -> LinkEvent:
        assert self._trainer is not None and self._command is not None
        command, self._command = self._command, None
        if command["op"] == "evaluate" or command.get("windows"):
            self._actor().sleep(self._step_s)
        value = perform(self._trainer, command, lambda _progress: False, writes=True)
        match command:
            case {"op": "load"}:
                self._fed = []
            case {"op": "save", "directory": directory}:
                (Path(directory).parent / f"{EXPORTS}-{Path(directory).name}").write_text(" ".join(map(str, self._fed)))
            case {"op": "restore", "directory": directory}:
                text = (Path(directory).parent / f"{EXPORTS}-{Path(directory).name}").read_text()
                self._fed = [int(window) for window in text.split()]
            case {"op": "export", "path": path}:
                self._exports.windows[digest_file(Path(path))] = tuple(self._fed)
        return Done(command["op"], value)

    def _run(self) -> LinkEvent:
        assert self._trainer is not None and self._command is not None
        if self._steps is None:
            plan = plan_from_json(self._command["plan"])
            if plan.ahead:
                self._fed = []
            self._plan_windows = list(window_numbers(plan.blocks))
            self._steps = self._trainer.begin(plan)
            return self._progressed(next(self._steps))
        self._actor().sleep(self._step_s)
        while self._now() < self.stuck_until:
            self._actor().sleep(1.0)
            return Progress(PhaseProgress(*self._last))
        try:
            return self._progressed(self._steps.send(self._stop))
        except StopIteration as end:
            result: PhaseResult = end.value
            self._fed += self._plan_windows[: result.windows]
            self._command, self._steps = None, None
            value = {name: getattr(result, name) for name in PhaseResult.__dataclass_fields__}
            return Done("run", {**value, "seconds": result.steps * self._step_s})

    def _progressed(self, progress: PhaseProgress) -> LinkEvent:
        self._last = (progress.steps, progress.windows, progress.blocks, progress.loss)
        return Progress(progress)
