"""The only file that starts programs.

A child gets a session of its own: a signal for its group reaches what it started in turn, and a Ctrl-C meant for the
parent does not.
"""

from __future__ import annotations

import contextlib
import os
import signal as signals
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crosstrain.errors import EnvironmentFault


@dataclass(frozen=True, slots=True)
class Completed:
    """What a program left: its exit code (negative: the signal that ended it) and its two outputs as text."""

    code: int
    stdout: str
    stderr: str


class Child:
    """A running program and the process group it leads."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """The exit code, or None while it runs; negative for the signal that ended it."""
        return self._process.poll()

    def wait(self, timeout: float) -> int | None:
        """Waits up to `timeout` seconds for the exit code; None when it still runs then."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def signal(self, signum: int) -> None:
        """Sends a signal to the whole group, also when its leader ended; nothing happens when none of it is left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signum)

    def kill_group(self) -> None:
        """Ends the whole group at once and collects its leader."""
        self.signal(signals.SIGKILL)
        self._process.wait()


def spawn(argv: Sequence[str], *, env: Mapping[str, str] | None = None, log: Path, cwd: Path | None = None) -> Child:
    """Starts a program and returns at once.

    Args:
        env: added to this process's environment.
        log: file that both its outputs are appended to.

    Raises:
        EnvironmentFault: the program does not exist or may not be run, or the log cannot be written.
    """
    try:
        output = log.open("ab")
    except OSError as error:
        raise EnvironmentFault(
            f"The log of {argv[0]} cannot be written at {log}: {error.strerror}.", "check the directory"
        ) from error
    with output:
        try:
            process = subprocess.Popen(
                list(argv),
                env={**os.environ, **(env or {})},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise _cannot_start(argv, error) from error
    return Child(process)


class DeadlinePassed(EnvironmentFault):
    """A program did not end in time and was ended."""


def run(
    argv: Sequence[str],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Completed:
    """Runs a program to its end, however that is; bytes that are not UTF-8 are replaced.

    Args:
        timeout: seconds after which its whole group is ended.
        env: added to this process's environment.
        environment: the whole environment, in the place of this process's.

    Raises:
        DeadlinePassed: it did not end in time.
        EnvironmentFault: the program does not exist or may not be run.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            env={**(os.environ if environment is None else environment), **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise _cannot_start(argv, error) from error
    with process:
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            Child(process).kill_group()
            raise DeadlinePassed(
                f"{' '.join(argv)} did not end within {timeout:g} s.",
                "see whether the machine or its scheduler is stuck",
            ) from None
    return Completed(process.returncode, stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"))


def _cannot_start(argv: Sequence[str], error: OSError) -> EnvironmentFault:
    return EnvironmentFault(
        f"The program {argv[0]} cannot be started: {error.strerror}.", "install it, or correct its name or PATH"
    )
