"""`crosstrain gc`: what it shows, what it removes, and that it keeps its hands off a run that is served."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.fakes import ManualClock, World, build_world, run_config, sqlite_file
from typer.testing import CliRunner

from crosstrain.batch.command import spawn
from crosstrain.cli.main import app
from crosstrain.clock import SystemClock, pause
from crosstrain.coordinator import garbage
from crosstrain.domain.ids import Digest
from crosstrain.domain.retention import Retention
from crosstrain.domain.timeouts import GRACE_S
from crosstrain.errors import Superseded, UsageError

RUN = """
[model]
vocab_size = 16
[coordinator]
keep_generations = 1
"""
HOUR = round(1000 * GRACE_S)


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    path = tmp_path / "RUN.toml"
    path.write_text(RUN)
    (tmp_path / "coordinator").mkdir()
    return path


@pytest.fixture
def world(run_file: Path) -> Iterator[World]:
    """Two generations made two hours ago, and a blob that nothing refers to."""
    directory = run_file.parent / "coordinator"
    with sqlite_file(directory / "run.sqlite") as database:
        made = build_world(
            directory, run_config(), database=database, clock=ManualClock(SystemClock().now() - 2 * HOUR)
        )
        (alpha,) = made.begin("alpha")
        alpha.work()
        alpha.contribute()
        made.step()
        made.put(b"nobody's")
        yield made


def gc(run_file: Path, *options: str) -> dict[str, list[dict[str, object]]]:
    result = CliRunner().invoke(app, ["gc", str(run_file), "--json", *options])
    assert result.exit_code == 0, result.output
    document: dict[str, list[dict[str, object]]] = json.loads(result.stdout)
    return document


HOLD = """
import signal, sys
from pathlib import Path
from crosstrain.storage.term_lock import FileTermLock
lock = FileTermLock(Path(sys.argv[1]))
print(lock.take(int(sys.argv[2])), flush=True)
signal.pause()
"""


@contextmanager
def another_process_locks(directory: Path, term: int) -> Iterator[None]:
    """The lock of a term is held by a process that lives, as by a coordinator."""
    log, end = directory / "log", SystemClock().perf() + 30
    child = spawn([sys.executable, "-c", HOLD, str(directory / "lock"), str(term)], log=log)
    try:
        while "True" not in log.read_text():
            assert SystemClock().perf() < end, log.read_text()
            pause(0.02)
        yield
    finally:
        child.kill_group()
        child.wait(10)


def note_all(world: World) -> None:
    """What the coordinator noted two hours ago."""
    garbage.collect(world.database, world.objects, Retention(1, 0, 0, HOUR), world.clock.now())


def digests(marks: list[dict[str, object]]) -> set[object]:
    return {mark["digest"] for mark in marks}


def test_dry_run_shows_and_changes_nothing(world: World, run_file: Path) -> None:
    before, blobs = world.dump(), list(world.objects.digests())
    old = world.chain()[0]
    found = gc(run_file, "--dry-run")
    assert found["removed"] == []
    assert {old.master, old.weights} < digests(found["waiting"])
    note_all(world)
    assert digests(gc(run_file, "--dry-run")["removed"]) == digests(found["waiting"])
    assert list(world.objects.digests()) == blobs
    world.execute("DELETE FROM unneeded")
    assert world.dump() == before


def test_what_is_due_is_removed_and_the_rest_waits(world: World, run_file: Path) -> None:
    note_all(world)
    young = world.put(b"just now")
    found = gc(run_file)
    assert digests(found["waiting"]) == {young}
    assert len(found["removed"]) == 2 + 1 + 1  # weights, master, the delta from them, nobody's
    assert all(not world.objects.has(Digest(str(digest))) for digest in digests(found["removed"]))
    audited = world.audit()
    assert (audited.problems, audited.replayed, audited.not_replayable) == ((), 0, 1)
    with pytest.raises(Superseded):
        world.step()
    text = CliRunner().invoke(app, ["gc", str(run_file)])
    assert text.exit_code == 0
    assert text.stdout.splitlines()[-1] == "0 removed (0.0 MB), 1 not needed and still kept (0.0 MB)"
    audit = CliRunner().invoke(app, ["audit", str(run_file), "--replay"])
    assert "0 recomputed" not in audit.stdout and "3 blobs removed by retention" in audit.stdout
    assert "1 generation could not be recomputed because of retention" in audit.stdout


def test_run_that_is_served_is_left_alone(world: World, run_file: Path) -> None:
    note_all(world)
    before = list(world.objects.digests())
    assert world.database.term is not None
    with another_process_locks(run_file.parent / "coordinator", world.database.term):
        result = CliRunner().invoke(app, ["gc", str(run_file)])
    assert isinstance(result.exception, UsageError)
    assert "A coordinator serves this run" in result.exception.message
    assert list(world.objects.digests()) == before
    world.step()


def test_no_run_is_no_run(run_file: Path) -> None:
    for options in ([], ["--dry-run"]):
        result = CliRunner().invoke(app, ["gc", str(run_file), *options])
        assert isinstance(result.exception, UsageError)
    assert not (run_file.parent / "coordinator" / "run.sqlite").exists()
