"""The demo's processes: real coordinators and sites, each in a process group of its own with a log of its own."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from types import TracebackType

from crosstrain.batch.command import Child, spawn
from crosstrain.batch.process_tree import descendants, send_signal
from crosstrain.clock import SystemClock
from crosstrain.errors import EnvironmentFault

COORDINATOR = "coordinator"
LEAVE_S = 8.0
"""How long processes get to leave by themselves before they are killed."""
LAST_WORDS = 15


class Part(StrEnum):
    """What of a site a signal is for."""

    AGENT = "agent"
    TRAINER = "trainer"
    WHOLE = "agent and trainer"


class Fleet:
    """Starts, kills and watches the processes of one run; leaving the `with` block ends all of them."""

    def __init__(self, run_file: Path, logs: Path) -> None:
        self._run_file = run_file
        self._logs = logs
        # Trainers' sockets go here, so that those of killed agents go away too; the system's own temporary directory
        # because a socket's path has room for 108 bytes.
        self._scratch = Path(tempfile.mkdtemp(prefix="crosstrain-demo-"))
        self._children: dict[str, Child] = {}
        self._stopped: dict[str, tuple[int, ...]] = {}

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start_coordinator(self) -> None:
        self._start(COORDINATOR, ["coordinator", str(self._run_file)])

    def start_site(self, name: str, *words: str) -> None:
        """Starts a site; `words` are further options of `crosstrain site`."""
        self._start(name, ["site", str(self._run_file), "--name", name, *words])

    def kill(self, name: str) -> None:
        """SIGKILL to all of it, as a power cut would end it."""
        child = self._children.pop(name)
        self._stopped.pop(name, None)
        send_signal((child.pid, *descendants(child.pid)), signal.SIGKILL)
        child.kill_group()

    def send(self, name: str, signum: int, part: Part = Part.AGENT) -> bool:
        """Signals a part of it; returns whether there was one. What is stopped stays so until `go_on`."""
        pids = self._pids(name, part)
        send_signal(pids, signum)
        if signum == signal.SIGSTOP:
            self._stopped[name] = pids
        return bool(pids)

    def go_on(self, name: str) -> None:
        """Continues what was stopped, if it is still there."""
        send_signal(self._stopped.pop(name, ()), signal.SIGCONT)

    def running(self, name: str) -> bool:
        """Whether it was started and has not ended, or its end was not asked for yet."""
        return name in self._children

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites whose processes run."""
        return tuple(name for name in self._children if name != COORDINATOR)

    def ended(self) -> dict[str, int]:
        """Name and exit code of those that ended since the last call; negative: the signal that ended it."""
        codes = {name: child.poll() for name, child in self._children.items()}
        found = {name: code for name, code in codes.items() if code is not None}
        for name in found:
            del self._children[name]
        return found

    def look(self) -> bool:
        """Takes note of processes that ended; returns whether a site left, as it does when the run is over.

        Raises:
            EnvironmentFault: one ended that should not have.
        """
        found = self.ended()
        for name, code in found.items():
            if name == COORDINATOR or code != 0:
                raise EnvironmentFault(self.obituary(name, code), f"the whole log is {self._log(name)}")
        return bool(found)

    def await_sites(self, seconds: float) -> None:
        """Waits until the sites have left by themselves; those that have not after `seconds` stay."""
        for name in self.sites:
            if self._children[name].wait(seconds) == 0:
                del self._children[name]

    def close(self) -> None:
        """Ends everything that still runs: sites first, while the coordinator can still hear them."""
        for name in tuple(self._stopped):
            self.go_on(name)
        try:
            self._end(self.sites)
            self._end([name for name in self._children if name == COORDINATOR])
        finally:
            # Also when a second Ctrl-C cut the waiting short.
            for child in self._children.values():
                child.kill_group()
            self._children.clear()
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _end(self, names: Sequence[str]) -> None:
        # SIGTERM only once: a second would make a site give up on its last words to the coordinator.
        for name in names:
            self._children[name].signal(signal.SIGTERM)
        clock = SystemClock()
        deadline = clock.perf() + LEAVE_S
        for name in names:
            self._children[name].wait(max(0.0, deadline - clock.perf()))
            self._children.pop(name).kill_group()

    def _pids(self, name: str, part: Part) -> tuple[int, ...]:
        pid = self._children[name].pid
        trainer = () if part is Part.AGENT else descendants(pid)
        return trainer if part is Part.TRAINER else (pid, *trainer)

    def _start(self, name: str, words: Sequence[str]) -> None:
        argv = [sys.executable, "-m", "crosstrain", *words]
        self._children[name] = spawn(argv, env={"TMPDIR": str(self._scratch)}, log=self._log(name))

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def obituary(self, name: str, code: int) -> str:
        """How it ended, and the end of its log."""
        how = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        lines = self._log(name).read_text(encoding="utf-8", errors="replace").splitlines()
        words = "\n".join(lines[-LAST_WORDS:])
        return f"{name} ended {how}, which nobody asked for. Its last words:\n{words}"
