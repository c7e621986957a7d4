"""Two real coordinators on one database: killed, stopped and woken again."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from tests.databases import SHARED
from tests.fakes import corpus_manifest

from crosstrain.assembly import open_database, open_run, open_stored_run
from crosstrain.batch.command import Child, spawn
from crosstrain.clock import SystemClock, pause
from crosstrain.errors import Superseded
from crosstrain.storage import pulse, run_store
from crosstrain.storage.database import Database
from crosstrain.storage.pulse import Pulse

TAKEOVER_S = 3.0
PATIENCE_S = 60.0
RUN = """
[run]
name = "twins"
[model]
vocab_size = 16
[data]
block_windows = 2
[coordinator]
takeover_s = {takeover_s}
database = "{database}"
"""


def until(condition: Callable[[], object], what: str) -> float:
    """Waits until it is so; returns after how many seconds it was."""
    clock = SystemClock()
    begun = clock.perf()
    while not condition():
        assert clock.perf() - begun < PATIENCE_S, what
        pause(0.01)
    return clock.perf() - begun


class Twin:
    """A coordinator process at a port of its own."""

    def __init__(self, run_file: Path, name: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.log = run_file.parent / f"{name}.log"
        argv = [sys.executable, "-m", "crosstrain", "coordinator", str(run_file), "--port", str(self.port)]
        self.child: Child = spawn(argv, log=self.log)

    def answer(self) -> tuple[int, str]:
        """Status and kind of what it says to a request, 0 if it does not answer."""
        try:
            reply = httpx.get(f"http://127.0.0.1:{self.port}/v1/status", timeout=2.0)
        except httpx.HTTPError:
            return 0, ""
        return reply.status_code, reply.json().get("kind", "")

    def serves(self) -> bool:
        return self.answer() == (200, "")

    def stands_by(self) -> bool:
        return self.answer() == (503, "standby")


@pytest.fixture(params=SHARED)
def run_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    address = "" if request.param == "sqlite-file" else request.getfixturevalue("postgres").fresh()
    path = tmp_path / "RUN.toml"
    path.write_text(RUN.format(takeover_s=TAKEOVER_S, database=address))
    (tmp_path / "corpus").mkdir()
    corpus_manifest().save(tmp_path / "corpus")
    return path


@pytest.fixture
def start(run_file: Path) -> Iterator[Callable[[str], Twin]]:
    twins: list[Twin] = []

    def begin(name: str) -> Twin:
        twins.append(Twin(run_file, name))
        return twins[-1]

    yield begin
    for twin in twins:
        twin.child.kill_group()


def starts(run_file: Path) -> int:
    """How many coordinators took the run over."""
    database, _ = open_stored_run(open_run(run_file))
    try:
        with database.read() as connection:
            return sum(row["kind"] == "coordinator-started" for row in run_store.events(connection))
    finally:
        database.close()


def shown(database: Database) -> Pulse:
    with database.read() as connection:
        return pulse.pulse(connection)


@pytest.mark.system
def test_standby_takes_over_from_a_killed_coordinator_at_once(run_file: Path, start: Callable[[str], Twin]) -> None:
    first = start("first")
    until(first.serves, "the first serves")
    second = start("second")
    until(second.stands_by, "the second stands by")
    database, lock = open_database(open_run(run_file))
    until(lambda: shown(database).beat >= 5, "the first beats three times in the time of a takeover")
    assert second.stands_by(), "a living coordinator is not taken over"
    database.close()
    lock.close()
    first.child.kill_group()
    assert until(second.serves, "the second serves") < TAKEOVER_S, "a dead one is not waited for"
    assert "standby: the coordinator of term 1 lives" in second.log.read_text()
    third = start("first")
    until(third.stands_by, "the first is now the standby")
    second.child.signal(signal.SIGTERM)
    assert second.child.wait(PATIENCE_S) is not None
    assert until(third.serves, "it serves again") < TAKEOVER_S
    assert starts(run_file) == 3


@pytest.mark.system
def test_stopped_coordinator_is_followed_and_cannot_write_when_it_wakes(
    run_file: Path, start: Callable[[str], Twin]
) -> None:
    first = start("first")
    until(first.serves, "the first serves")
    second = start("second")
    until(second.stands_by, "the second stands by")
    database, lock = open_database(open_run(run_file))
    before = shown(database)
    until(lambda: shown(database) != before, "the first gives signs of life")  # so it is in no transaction right now
    first.child.signal(signal.SIGSTOP)
    waited = until(second.serves, "the second serves")
    assert TAKEOVER_S / 2 < waited < PATIENCE_S
    assert shown(database).term == 2
    first.child.signal(signal.SIGCONT)
    assert first.child.wait(PATIENCE_S) == Superseded.exit_code
    assert "writes with term 1, the database is at term 2" in first.log.read_text()
    assert second.serves()
    assert starts(run_file) == 2
    third = start("third")
    until(third.stands_by, "the third finds the second alive")
    lock.close()
    database.close()


@pytest.mark.system
def test_killed_coordinator_that_starts_again_does_not_wait(run_file: Path, start: Callable[[str], Twin]) -> None:
    first = start("first")
    until(first.serves, "it serves")
    first.child.kill_group()
    again = start("again")
    until(again.serves, "it serves again")
    assert "standby" not in again.log.read_text()
