"""Programs are started, watched, signalled and ended; a missing one is an error for people."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from tests.site.bench import until

from crosstrain.batch.command import Child, run, spawn
from crosstrain.errors import EnvironmentFault

_PATIENCE = 20.0

# Prints its own and its child's process id; both live until they are ended.
_FAMILY = """
import os, sys, time
child = os.fork()
if child:
    print(os.getpid(), child, flush=True)
time.sleep(600)
"""


def python(log: Path, program: str, **arguments: object) -> Child:
    return spawn([sys.executable, "-c", program], log=log, **arguments)  # type: ignore[arg-type]


def test_outputs_are_appended_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    child = python(log, "import sys; print('out', flush=True); print('err', file=sys.stderr)")
    assert child.wait(_PATIENCE) == 0
    assert log.read_text() == "before\nout\nerr\n"
    assert child.poll() == 0


def test_env_is_added_and_cwd_is_used(tmp_path: Path) -> None:
    program = "import os; print(os.environ['COLOUR'], 'PATH' in os.environ, os.getcwd())"
    child = python(tmp_path / "log", program, env={"COLOUR": "blue"}, cwd=tmp_path)
    assert child.wait(_PATIENCE) == 0
    assert (tmp_path / "log").read_text() == f"blue True {tmp_path.resolve()}\n"


def test_a_child_leads_a_group_of_its_own(tmp_path: Path) -> None:
    child = python(tmp_path / "log", "input()")
    assert child.wait(_PATIENCE) == 1, "its standard input is empty"
    child = python(tmp_path / "log", _FAMILY)
    assert os.getpgid(child.pid) == child.pid != os.getpgid(0)
    assert child.poll() is None
    assert child.wait(0.0) is None
    child.kill_group()
    assert child.poll() == -signal.SIGKILL


@pytest.mark.parametrize("leader_first", [False, True])
def test_a_signal_reaches_the_whole_group(tmp_path: Path, leader_first: bool) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    # The pipe ends when the last process that inherited it does.
    keeper = "import os, sys, time; os.fork(); print('up', flush=True); time.sleep(600)"
    child = _spawn_with(tmp_path / "log", keeper, writing)
    os.close(writing)
    if leader_first:
        os.kill(child.pid, signal.SIGKILL)
        assert child.wait(_PATIENCE) == -signal.SIGKILL
    child.signal(signal.SIGTERM)
    assert os.read(reading, 1) == b""
    os.close(reading)
    child.kill_group()
    child.signal(signal.SIGTERM)


def _spawn_with(log: Path, program: str, descriptor: int) -> Child:
    """A child that holds the pipe end `descriptor` of this process open, with one child of its own."""
    opened = f"import os; os.open('/proc/{os.getpid()}/fd/{descriptor}', os.O_WRONLY);"
    child = python(log, opened + program)
    until(lambda: log.read_text().count("up") == 2)
    return child


def test_run_gives_code_and_outputs() -> None:
    program = "import sys, os; print('out'); sys.stderr.buffer.write(b'\\xff'); sys.exit(int(os.environ['CODE']))"
    done = run([sys.executable, "-c", program], timeout=_PATIENCE, env={"CODE": "3"})
    assert (done.code, done.stdout, done.stderr) == (3, "out\n", "\ufffd")


def test_run_ends_what_takes_too_long() -> None:
    with pytest.raises(EnvironmentFault, match=r"did not end within 0.2 s"):
        run([sys.executable, "-c", _FAMILY], timeout=0.2)


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="no-such-program cannot be started"):
        run(["no-such-program"], timeout=1.0)
    with pytest.raises(EnvironmentFault, match="no-such-program cannot be started"):
        spawn(["no-such-program"], log=tmp_path / "log")


def test_an_unwritable_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="log of true cannot be written"):
        spawn(["true"], log=tmp_path / "missing" / "log")
