"""The agent's side of its trainer: submit a command, poll for what comes of it. No call waits for the trainer.

submit ──▶ Progress* ──▶ Done | Failed        one command at a time, after Ready
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from crosstrain.batch.command import Child, spawn
from crosstrain.domain.phase import PhaseProgress
from crosstrain.errors import CrosstrainError, EnvironmentFault
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
from crosstrain.site.settings import TrainerSettings
from crosstrain.site.trainer import Command, Position, TensorSpec, Trainer
from crosstrain.site.worker import SOCKET_VARIABLE


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

    def close(self) -> None:
        """Ends the trainer, whatever it does, within seconds. May be called twice."""
        ...


class _Link:
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
        if not self._ready or self._op:
            raise ValueError(f"{op}: expected a trainer that waits, found one that is at {self._op or 'its start'}")
        self._op = op
        self._number += 1
        self._send({"op": op, "number": self._number, **arguments})

    def request_stop(self) -> None:
        if self._op == "run":
            self._send({"op": "stop", "number": self._number})

    def _send(self, command: Command) -> None:
        raise NotImplementedError

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


class InProcessLink(_Link):
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


_TAIL = 30  # lines of the log in the message about a trainer that ended
_TORCHRUN = "torch/distributed/elastic/multiprocessing/api.py"
_CLOSE_S = 5.0
_RECEIVE = 1 << 16


class ProcessLink(_Link):
    """Runs the trainer in processes of its own, over a Unix socket.

    Args:
        log: file that the output of all ranks is appended to.
        ranks: processes; more than one are started by torchrun on this machine.
        launch: words put before the command.
        command: the words before SETTINGS.json; by default the worker's for `ranks`.
    """

    def __init__(
        self,
        settings: TrainerSettings,
        log: Path,
        *,
        ranks: int = 1,
        launch: Sequence[str] = (),
        command: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self._settings = settings
        self._log = log
        self._argv = [*launch, *(command or worker_command(ranks))]
        self._directory: Path | None = None
        self._listener: socket.socket | None = None
        self._socket: socket.socket | None = None
        self._child: Child | None = None
        self._log_begin = 0
        self._received = b""
        self._unsent = b""
        self._ended = True

    def start(self) -> None:
        self.close()
        self._received = self._unsent = b""
        # Not in the site's directory: a socket's path has room for 108 bytes.
        self._directory = Path(tempfile.mkdtemp(prefix="crosstrain-"))
        address, settings = self._directory / "trainer", self._directory / "settings.json"
        settings.write_text(self._settings.to_json(), encoding="utf-8")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(address))
        self._listener.listen(1)
        self._listener.setblocking(False)
        self._log_begin = self._log.stat().st_size if self._log.exists() else 0
        env = {SOCKET_VARIABLE: str(address), "OMP_NUM_THREADS": str(self._settings.threads)}
        try:
            self._child = spawn([*self._argv, str(settings)], env=env, log=self._log)
        except EnvironmentFault:
            self._clear()
            raise
        self._ended = False

    @property
    def alive(self) -> bool:
        return not self._ended

    @property
    def pid(self) -> int | None:
        """Of the process started: the worker, torchrun, or the launcher."""
        return self._child.pid if self._child else None

    def poll(self) -> LinkEvent | None:
        if self.alive:
            # Asked before reading: what a process wrote before it ended is then read in this call.
            code = self._child.poll() if self._child else None
            self._exchange()
            if code is not None:
                self._end(code)
        return self._events.popleft() if self._events else None

    def close(self) -> None:
        if self._child and not self._ended:
            self._ended = True
            self._shut()
            if self._child.wait(_CLOSE_S) is None:
                self._child.signal(signal.SIGTERM)
                self._child.wait(_CLOSE_S)
            self._child.kill_group()
        self._clear()
        self._forget()

    def _send(self, command: Command) -> None:
        self._unsent += json.dumps(command).encode() + b"\n"
        self._exchange()

    def _exchange(self) -> None:
        """Accepts, sends and receives as much as goes without waiting."""
        if self._socket is None and self._listener is not None:
            with contextlib.suppress(BlockingIOError):
                self._socket, _ = self._listener.accept()
                self._socket.setblocking(False)
        if self._socket is None:
            return
        # An error of the socket means that the trainer has ended or is about to; its exit code says more.
        with contextlib.suppress(OSError):
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        with contextlib.suppress(OSError):
            while piece := self._socket.recv(_RECEIVE):
                self._received += piece
        *lines, self._received = self._received.split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _end(self, code: int) -> None:
        self._ended, self._ready = True, False
        op = self._finish()
        if not self._closed:
            self._events.append(Failed(self._obituary(code), op))
        if self._child:
            self._child.kill_group()
        self._clear()

    def _obituary(self, code: int) -> EnvironmentFault:
        how = f"by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"with exit code {code}"
        try:
            with self._log.open("rb") as log:
                log.seek(self._log_begin)
                lines = log.read().decode("utf-8", "replace").splitlines()
        except OSError as error:
            lines = [f"(its log cannot be read: {error})"]
        # torchrun's account of how its ranks ended follows their own words, and is longer.
        end = next((at for at, line in enumerate(lines) if at and _TORCHRUN in line), None)
        words = "\n".join(lines[:end][-_TAIL:])
        return EnvironmentFault(f"The trainer ended {how}. Its last words:\n{words}", f"see {self._log}")

    def _shut(self) -> None:
        for end in (self._socket, self._listener):
            if end is not None:
                end.close()
        self._socket = self._listener = None

    def _clear(self) -> None:
        self._shut()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None


def worker_command(ranks: int) -> list[str]:
    """The words that start the worker's ranks on this machine, without the settings."""
    if ranks == 1:
        return [sys.executable, "-m", "crosstrain.site.worker"]
    run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return [sys.executable, *run, "-m", "crosstrain.site.worker"]
