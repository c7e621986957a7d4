"""Processes below a process, whatever sessions they are in."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tests.site.bench import until

from crosstrain.batch.command import spawn
from crosstrain.batch.process_tree import descendants, send_signal

# A child and a grandchild in a session of its own, whose name would confuse a careless reader of /proc.
_FAMILY = """
import os, time
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        open("/proc/self/comm", "w").write("a) R 1 (b")
        print("up", flush=True)
time.sleep(600)
"""


def test_children_in_sessions_of_their_own_are_found_and_signalled(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = spawn([sys.executable, "-c", _FAMILY], log=log)
    until(lambda: "up" in log.read_text())
    below = descendants(child.pid)
    assert len(below) == 2
    assert descendants(below[0]) == (below[1],)
    assert os.getpgid(below[1]) == below[1]
    send_signal((child.pid, *below), signal.SIGKILL)
    assert child.wait(20.0) == -signal.SIGKILL
    until(lambda: not any(_lives(pid) for pid in below))
    send_signal(below, signal.SIGKILL)
    assert descendants(child.pid) == ()


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
