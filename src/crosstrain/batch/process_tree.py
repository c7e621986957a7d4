"""Processes that a program started in turn, in whatever sessions and groups: Linux alone, from /proc."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

_PROC = Path("/proc")


def descendants(pid: int) -> tuple[int, ...]:
    """The processes below `pid`, parents first; those of a parent that ended are not below it any more."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            # One that ends meanwhile has no files left.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                children[_parent((entry / "stat").read_text(errors="replace"))].append(int(entry.name))
    found = [pid]
    for each in found:
        found += children[each]
    return tuple(found[1:])


def _parent(stat: str) -> int:
    # The name in parentheses may hold anything.
    return int(stat.rpartition(")")[2].split()[1])


def send_signal(pids: Iterable[int], signum: int) -> None:
    """Signals each process that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)
