"""What a process used, from /proc: processor time and memory, of the process and of everything below it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """Of one process and its descendants.

    Attributes:
        cpu_s: user and system time, of children that ended too.
        peak_mib: sum of the processes' largest resident sets so far (VmHWM); pages of mapped files count while they are mapped.
        pss_mib: now; pages that several processes share are divided among them.
    """

    cpu_s: float
    peak_mib: float
    pss_mib: float


def usage(pid: int) -> Usage:
    """Zero for what ended already."""
    alive = family(pid)
    return Usage(
        sum(cpu_seconds(number) for number in alive),
        sum(_kib(number, "status", "VmHWM:") for number in alive) / 1024,
        sum(_kib(number, "smaps_rollup", "Pss:") for number in alive) / 1024,
    )


def family(pid: int) -> list[int]:
    """The process and its descendants."""
    found = [pid]
    for number in found:
        for children in Path(f"/proc/{number}/task").glob("*/children"):
            found += map(int, _read(children).split())
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, with the children that it has collected."""
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(") ")[2].split()
    return sum(map(int, fields[11:15])) / TICKS


def anonymous_mib(pids: Iterable[int]) -> float:
    """Resident memory that is no file's page."""
    return sum(_kib(pid, "status", "RssAnon:") for pid in pids) / 1024


def _kib(pid: int, name: str, key: str) -> int:
    for line in _read(Path(f"/proc/{pid}/{name}")).splitlines():
        if line.startswith(key):
            return int(line.split()[1])
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def exit_on_sigterm() -> None:
    """A benchmark that is ended from outside leaves nothing behind: `with` blocks end as for an exception. `timeout` sends the
    signal twice, and the second one must not end the ending."""

    def leave(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit("ended by SIGTERM")

    signal.signal(signal.SIGTERM, leave)
