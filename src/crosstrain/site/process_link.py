"""The trainer in processes of its own, over a Unix socket; it ends with the agent, and the agent outlives it."""

from __future__ import annotations

import contextlib
import json
import select
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from crosstrain.batch.command import Child, spawn
from crosstrain.clock import pause
from crosstrain.domain.timeouts import TRAINER_ENDS_S
from crosstrain.errors import EnvironmentFault
from crosstrain.site.settings import TrainerSettings
from crosstrain.site.trainer import Command
from crosstrain.site.trainer_link import CommandLink, Failed, LinkEvent
from crosstrain.site.worker import SOCKET_VARIABLE

_TAIL = 30  # lines of the log in the message about a trainer that ended
_TORCHRUN = "torch/distributed/elastic/multiprocessing/api.py"
_RECEIVE = 1 << 16


class ProcessLink(CommandLink):
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

    def wait(self, seconds: float) -> None:
        if self._events:
            return
        end = self._socket or self._listener
        if end is None:
            pause(seconds)
        else:
            select.select([end], [], [], seconds)

    def close(self) -> None:
        if self._child and not self._ended:
            self._ended = True
            self._shut()
            if self._child.wait(TRAINER_ENDS_S) is None:
                self._child.signal(signal.SIGTERM)
                self._child.wait(TRAINER_ENDS_S)
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
