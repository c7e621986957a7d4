"""The agent's side of its trainer: submit a command, poll for what comes of it. No call waits for the trainer.

submit ──▶ Progress* ──▶ Done | Failed        one command at a time, after Ready
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from crosstrain.domain.phase import PhaseProgress
from crosstrain.errors import CrosstrainError
from crosstrain.site.commands import (
    ANSWERED,
    error_from_json,
    error_to_json,
    manifest_from_json,
    perform,
    position_from_json,
    progress_to_json,
    ready_to_json,
)
from crosstrain.site.trainer import Command, Position, TensorSpec, Trainer


@dataclass(frozen=True, slots=True)
class Ready:
    """The trainer is built and takes commands."""

    manifest: tuple[TensorSpec, ...]
    position: Position


@dataclass(frozen=True, slots=True)
class Progress:
    """The newest progress of the run; older reports that were not polled for are dropped."""

    progress: PhaseProgress


@dataclass(frozen=True, slots=True)
class Done:
    """The command `op` is done; `value` as `commands.py` lists it."""

    op: str
    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Failed:
    """The command `op` failed, or the trainer ended (then `op` is what it was doing, if anything, and `alive` is false)."""

    error: CrosstrainError
    op: str | None


LinkEvent = Ready | Progress | Done | Failed


class TrainerLink(Protocol):
    """A trainer as the agent sees it."""

    def start(self) -> None:
        """Starts the trainer, also after it ended or was closed; `Ready` comes when it is built.

        Raises:
            EnvironmentFault: it cannot be started.
        """
        ...

    @property
    def alive(self) -> bool:
        """Whether it was started and has neither ended nor been closed."""
        ...

    def submit(self, op: str, **arguments: Any) -> None:
        """Gives the trainer a command of `commands.py`, with JSON values as arguments.

        Raises:
            ValueError: not ready yet, or the last command is not answered yet.
        """
        ...

    def request_stop(self) -> None:
        """Asks the run in progress to stop at the next block boundary; nothing happens when none is."""
        ...

    def poll(self) -> LinkEvent | None:
        """The next event, or None."""
        ...

    def wait(self, seconds: float) -> None:
        """Returns when the trainer may have said something, at the latest after `seconds`."""
        ...

    def close(self) -> None:
        """Ends the trainer, whatever it does, within seconds. May be called twice."""
        ...


class CommandLink(ABC):
    """What both links share: one command at a time, and the events that answers become."""

    def __init__(self) -> None:
        self._number = 0
        self._forget()

    def _forget(self) -> None:
        """To the state before a trainer's start."""
        self._events: deque[LinkEvent] = deque()
        self._ready = False
        self._closed = False
        self._op: str | None = None

    def submit(self, op: str, **arguments: Any) -> None:
        if not self._ready and any(isinstance(event, Failed) for event in self._events):
            return  # it ended right after its last answer: the next poll says so, as the answer to this command
        if not self._ready or self._op:
            raise ValueError(f"{op}: expected a trainer that waits, found one that is at {self._op or 'its start'}")
        self._op = op
        self._number += 1
        self._send({"op": op, "number": self._number, **arguments})

    def request_stop(self) -> None:
        if self._op == "run":
            self._send({"op": "stop", "number": self._number})

    @abstractmethod
    def _send(self, command: Command) -> None:
        """Takes a command, or a stop for the run in progress, to the trainer."""

    def _take(self, answer: dict[str, Any]) -> None:
        """Turns one answer of the trainer into an event."""
        match answer:
            case {"ready": content}:
                self._ready = True
                self._events.append(Ready(manifest_from_json(content), position_from_json(content)))
            case {"progress": content}:
                if self._events and isinstance(self._events[-1], Progress):
                    self._events.pop()
                self._events.append(Progress(PhaseProgress(**content)))
            case {"done": content}:
                op = self._finish() or ""
                self._closed = op == "close"
                self._events.append(Done(op, content))
            case {"error": content}:
                self._events.append(Failed(error_from_json(content), self._finish()))

    def _finish(self) -> str | None:
        op, self._op = self._op, None
        return op


class InProcessLink(CommandLink):
    """Runs the trainer in this process, and each command to its end in one `poll`: for tests and simulation."""

    def __init__(self, factory: Callable[[], Trainer]) -> None:
        super().__init__()
        self._factory = factory
        self._trainer: Trainer | None = None
        self._started = False
        self._command: Command | None = None
        self._stopped = -1

    def start(self) -> None:
        self.close()
        self._started = True

    @property
    def alive(self) -> bool:
        return self._started

    def poll(self) -> LinkEvent | None:
        if not self._events and self._started:
            self._work()
        return self._events.popleft() if self._events else None

    def wait(self, seconds: float) -> None:
        """Does nothing: every `poll` of this link does all that there is to do."""

    def close(self) -> None:
        if self._trainer and self._started:
            self._trainer.close()
        self._trainer = self._command = None
        self._started = False
        self._forget()

    def _send(self, command: Command) -> None:
        if command["op"] == "stop":
            self._stopped = command["number"]
        else:
            # Through JSON as over a socket, so that what only works here fails here.
            self._command = json.loads(json.dumps(command))

    def _work(self) -> None:
        if self._trainer is None:
            self._trainer = self._factory()
            self._answer("ready", ready_to_json(self._trainer))
        elif self._command is not None:
            command, self._command = self._command, None
            try:
                self._answer("done", perform(self._trainer, command, self._watch, writes=True))
            except ANSWERED as error:
                self._answer("error", error_to_json(error))
            if command["op"] == "close":
                self._started = self._ready = False

    def _watch(self, progress: PhaseProgress) -> bool:
        self._answer("progress", progress_to_json(progress))
        return self._stopped == self._number

    def _answer(self, kind: str, content: dict[str, Any]) -> None:
        self._take(json.loads(json.dumps({kind: content})))
