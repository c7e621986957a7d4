"""A trainer in this process and one in its own behave alike, and the second ends with its agent."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.site.bench import descendants, plan, running, same, until, weights_of

from crosstrain.batch.command import spawn
from crosstrain.domain.ids import Generation
from crosstrain.domain.phase import PhasePlan
from crosstrain.errors import Diverged, EnvironmentFault, IntegrityError, UsageError
from crosstrain.site.commands import plan_to_json, position_from_json, result_from_json
from crosstrain.site.counting import CountingTrainer
from crosstrain.site.process_link import ProcessLink
from crosstrain.site.settings import TrainerSettings, window_log_path
from crosstrain.site.trainer_link import (
    Done,
    Failed,
    InProcessLink,
    LinkEvent,
    Progress,
    Ready,
    TrainerLink,
)
from crosstrain.storage.object_store import digest_file
from crosstrain.storage.weights_file import WeightsFile

ENDLESS = plan(*((first, 1000) for first in range(0, 30_000, 1000)), per_step=1)
"""Takes longer than any test waits for."""


@pytest.fixture
def counting(settings: TrainerSettings, tmp_path: Path) -> TrainerSettings:
    return dataclasses.replace(settings, engine="counting", window_log=tmp_path / "windows")


@pytest.fixture(params=["in process", "process"])
def link(request: pytest.FixtureRequest, counting: TrainerSettings, tmp_path: Path) -> Iterator[TrainerLink]:
    made: TrainerLink
    if request.param == "process":
        made = ProcessLink(counting, tmp_path / "log", launch=["nice", "-n", "1"])
    else:
        made = InProcessLink(lambda: CountingTrainer(counting.seq_len, counting.window_log))
    made.start()
    yield made
    made.close()


def event(link: TrainerLink) -> LinkEvent:
    return until(link.poll)


def do(link: TrainerLink, op: str, **arguments: Any) -> Done | Failed:
    """Submits a command and waits for its end."""
    link.submit(op, **arguments)
    while isinstance(found := event(link), Progress):
        pass
    assert isinstance(found, Done | Failed)
    assert found.op == op
    return found


def done(link: TrainerLink, op: str, **arguments: Any) -> dict[str, Any]:
    found = do(link, op, **arguments)
    assert isinstance(found, Done), found
    return found.value


def failure(link: TrainerLink, op: str, **arguments: Any) -> Exception:
    found = do(link, op, **arguments)
    assert isinstance(found, Failed), found
    assert link.alive
    return found.error


@pytest.fixture
def ready(link: TrainerLink, tmp_path: Path) -> TrainerLink:
    """A link whose trainer holds generation 0 of the file `initial`."""
    assert isinstance(event(link), Ready)
    done(link, "initialise", seed=1, path=str(tmp_path / "initial"))
    done(link, "load", path=str(tmp_path / "initial"), generation=0)
    return link


def run_arguments(phase: PhasePlan) -> dict[str, Any]:
    return {"plan": plan_to_json(phase)}


def test_ready_says_what_the_trainer_is(link: TrainerLink) -> None:
    with pytest.raises(ValueError, match="at its start"):
        link.submit("evaluate", windows=1)
    found = event(link)
    assert isinstance(found, Ready)
    assert found.manifest == CountingTrainer(1).manifest
    assert found.position.generation is None
    assert link.alive
    assert link.poll() is None


def test_a_phase_over_the_link_is_the_phase_itself(ready: TrainerLink, tmp_path: Path) -> None:
    phase = plan((0, 6), (20, 7))
    result = result_from_json(done(ready, "run", **run_arguments(phase)))
    alone = CountingTrainer(seq_len=16)
    alone.load(tmp_path / "initial", Generation(0))
    expected = alone.run(phase, lambda _: False)
    assert dataclasses.replace(result, seconds=0.0) == dataclasses.replace(expected, seconds=0.0)
    assert done(ready, "export", path=str(tmp_path / "weights"), base=None, codec="fp32")["bytes"] > 0
    with WeightsFile(tmp_path / "weights") as file:
        assert same({entry.name: file.array(entry.name) for entry in file.entries}, weights_of(alone))
    log = window_log_path(tmp_path / "windows", 0)
    assert sum(line[0].isdigit() for line in log.read_text().splitlines()) == result.steps


@pytest.mark.parametrize(("codec", "exact"), [("fp32", True), ("bf16", False)])
def test_export_writes_what_was_learnt(ready: TrainerLink, tmp_path: Path, codec: str, exact: bool) -> None:
    done(ready, "run", **run_arguments(plan((0, 12))))
    done(ready, "export", path=str(tmp_path / "weights"), base=None, codec="fp32")
    value = done(ready, "export", path=str(tmp_path / "delta"), base=str(tmp_path / "initial"), codec=codec)
    squares = 0.0
    with (
        WeightsFile(tmp_path / "delta") as delta,
        WeightsFile(tmp_path / "weights") as held,
        WeightsFile(tmp_path / "initial") as base,
    ):
        assert {entry.dtype for entry in delta.entries} == {"F32" if exact else "BF16"}
        for entry in delta.entries:
            expected = held.array(entry.name) - base.array(entry.name)
            np.testing.assert_allclose(delta.array(entry.name).astype(np.float32), expected, rtol=0 if exact else 2**-8)
            squares += float((expected.astype(np.float64) ** 2).sum())
    assert value["norm"] == pytest.approx(np.sqrt(squares), rel=1e-12)
    assert value["bytes"] == (tmp_path / "delta").stat().st_size
    assert value["digest"] == digest_file(tmp_path / "delta")


def test_the_other_commands(ready: TrainerLink, tmp_path: Path) -> None:
    done(ready, "run", **run_arguments(plan((0, 8), first_step=4)))
    position = position_from_json(done(ready, "save", directory=str(tmp_path / "state")))
    assert (position.global_step, position.inner_state) == (6, "restored")
    before = done(ready, "evaluate", windows=3)
    assert before["tokens"] == 48
    done(ready, "run", **run_arguments(plan((20, 8))))
    assert done(ready, "evaluate", windows=3) != before
    assert position_from_json(done(ready, "restore", directory=str(tmp_path / "state"))) == position
    assert done(ready, "evaluate", windows=3) == before
    assert len(done(ready, "generate", prompt=[1], tokens=4, temperature=0.0, seed=1)["tokens"]) == 4


def test_errors_come_back_as_what_they_are(ready: TrainerLink, tmp_path: Path) -> None:
    assert isinstance(failure(ready, "restore", directory=str(tmp_path / "nothing")), IntegrityError)
    assert isinstance(failure(ready, "run", **run_arguments(plan((0, 8), generation=5))), UsageError)
    assert isinstance(failure(ready, "save", directory=str(tmp_path)), EnvironmentFault)
    assert isinstance(
        failure(ready, "export", path=str(tmp_path / "no" / "way"), base=None, codec="fp32"), EnvironmentFault
    )
    assert isinstance(failure(ready, "export", path=str(tmp_path / "x"), base=None, codec="int1"), UsageError)
    absent = failure(ready, "export", path=str(tmp_path / "x"), base=str(tmp_path / "absent"), codec="fp32")
    assert isinstance(absent, IntegrityError)
    assert not list(tmp_path.glob("x*"))
    assert isinstance(failure(ready, "run", **run_arguments(plan((0, 40), lr=1e38))), Diverged)
    assert isinstance(failure(ready, "no such thing"), UsageError)
    done(ready, "load", path=str(tmp_path / "initial"), generation=1)


def test_one_command_at_a_time(ready: TrainerLink) -> None:
    ready.submit("run", **run_arguments(ENDLESS))
    with pytest.raises(ValueError, match="at run"):
        ready.submit("evaluate", windows=1)
    ready.request_stop()
    until(lambda: isinstance(ready.poll(), Done))
    done(ready, "evaluate", windows=1)


def test_a_stop_counts_for_its_own_run_only(ready: TrainerLink) -> None:
    ready.request_stop()
    assert not result_from_json(done(ready, "run", **run_arguments(plan((0, 8))))).stopped
    ready.submit("run", **run_arguments(plan((0, 8))))
    ready.request_stop()
    until(lambda: isinstance(ready.poll(), Done))
    ready.request_stop()
    assert not result_from_json(done(ready, "run", **run_arguments(plan((0, 8))))).stopped


def test_close_as_a_command_ends_the_trainer_without_complaint(ready: TrainerLink) -> None:
    assert done(ready, "close") == {}
    until(lambda: (ready.poll() is None) and not ready.alive)
    assert ready.poll() is None


def test_close_twice(link: TrainerLink) -> None:
    link.close()
    link.close()
    assert not link.alive
    assert link.poll() is None


def test_a_link_starts_again(ready: TrainerLink, tmp_path: Path) -> None:
    ready.submit("run", **run_arguments(ENDLESS))
    ready.close()
    assert not ready.alive
    ready.start()
    found = event(ready)
    assert isinstance(found, Ready)
    assert found.position.generation is None
    done(ready, "load", path=str(tmp_path / "initial"), generation=3)
    assert ready.alive


@pytest.fixture
def process(counting: TrainerSettings, tmp_path: Path) -> Iterator[ProcessLink]:
    made = ProcessLink(counting, tmp_path / "log")
    made.start()
    assert isinstance(event(made), Ready)
    done(made, "initialise", seed=1, path=str(tmp_path / "initial"))
    done(made, "load", path=str(tmp_path / "initial"), generation=0)
    yield made
    made.close()


def test_a_running_phase_reports_and_stops_at_its_block(process: ProcessLink) -> None:
    process.submit("run", **run_arguments(ENDLESS))
    first = until(lambda: _progress(process))
    assert until(lambda: _progress(process)).progress.windows > first.progress.windows
    process.request_stop()
    finished = until(lambda: found if isinstance(found := process.poll(), Done) else None)
    result = result_from_json(finished.value)
    assert result.stopped
    assert first.progress.windows < result.windows == 1000 * result.blocks < ENDLESS.windows


def _progress(link: ProcessLink) -> Progress | None:
    found = link.poll()
    return found if isinstance(found, Progress) else None


def test_a_trainer_does_not_wait_for_an_agent_that_does_not_read(process: ProcessLink, tmp_path: Path) -> None:
    process.submit("run", **run_arguments(plan((0, 5000), per_step=1)))
    # Far more reports than a socket holds; the log shows that all steps were taken while nothing was read.
    log = window_log_path(tmp_path / "windows", 0)
    until(lambda: log.exists() and log.read_text().endswith("0 4999 0 4999\n"))
    until(lambda: isinstance(process.poll(), Done))


def test_a_trainer_that_dies_is_a_failure_with_its_last_words(process: ProcessLink, tmp_path: Path) -> None:
    process.submit("run", **run_arguments(ENDLESS))
    until(lambda: _progress(process))
    with (tmp_path / "log").open("a") as log:
        log.write("the node is on fire\n")
    assert process.pid
    os.kill(process.pid, signal.SIGKILL)
    failed = until(lambda: found if isinstance(found := process.poll(), Failed) else None)
    assert failed.op == "run"
    assert isinstance(failed.error, EnvironmentFault)
    assert "signal 9 (Killed)" in failed.error.message
    assert failed.error.message.endswith("the node is on fire")
    assert not process.alive
    assert process.poll() is None
    process.start()
    assert isinstance(event(process), Ready)
    assert process.alive


def test_a_trainer_that_dies_right_after_an_answer_fails_the_next_command(process: ProcessLink, tmp_path: Path) -> None:
    process.submit("save", directory=str(tmp_path / "saved"))
    assert process.pid
    process.wait(20.0)
    os.kill(process.pid, signal.SIGKILL)
    # Answer and end are found in one look.
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert isinstance(event(process), Done)
    process.submit("export", path=str(tmp_path / "delta"), base=None, codec="fp32")
    failed = event(process)
    assert isinstance(failed, Failed)
    assert "signal 9 (Killed)" in failed.error.message
    with pytest.raises(ValueError, match="expected a trainer that waits"):
        process.submit("export", path=str(tmp_path / "delta"), base=None, codec="fp32")


def test_a_trainer_that_cannot_start_is_a_failure(counting: TrainerSettings, tmp_path: Path) -> None:
    words = [sys.executable, "-c", "raise SystemExit('no GPU here')"]
    made = ProcessLink(counting, tmp_path / "log", command=words)
    made.start()
    failed = event(made)
    assert isinstance(failed, Failed)
    assert "exit code 1" in failed.error.message
    assert "no GPU here" in failed.error.message
    assert failed.op is None
    made.close()
    missing = ProcessLink(counting, tmp_path / "log", launch=["no-such-launcher"])
    with pytest.raises(EnvironmentFault, match="no-such-launcher"):
        missing.start()
    assert not missing.alive


def test_close_ends_a_trainer_in_the_middle_of_a_phase(process: ProcessLink) -> None:
    process.submit("run", **run_arguments(ENDLESS))
    until(lambda: _progress(process))
    pid = process.pid
    assert pid
    process.close()
    assert not running(pid)


def test_warnings_of_the_scheduler_are_left_to_the_agent(process: ProcessLink) -> None:
    process.submit("run", **run_arguments(ENDLESS))
    until(lambda: _progress(process))
    assert process.pid
    for signum in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        os.kill(process.pid, signum)
    until(lambda: _progress(process))
    process.request_stop()
    until(lambda: isinstance(process.poll(), Done))
    assert process.alive


# An agent in a process of its own: starts the trainer, prints its process id when `moment` has come, and waits to be killed.
_AGENT = """
import sys
from pathlib import Path
from crosstrain.clock import pause
from crosstrain.site.commands import plan_to_json
from crosstrain.site.settings import TrainerSettings
from crosstrain.site.process_link import ProcessLink
from crosstrain.site.trainer_link import Done, Progress, Ready
from tests.site.bench import plan, until

directory, moment, ranks = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
settings = TrainerSettings.from_json((directory / "settings.json").read_text())
link = ProcessLink(settings, directory / "trainer.log", ranks=ranks)
link.start()

def wait(kind):
    until(lambda: isinstance(link.poll(), kind))

if moment != "starting":
    wait(Ready)
if moment == "training":
    link.submit("initialise", seed=1, path=str(directory / "initial")); wait(Done)
    link.submit("load", path=str(directory / "initial"), generation=0); wait(Done)
    blocks = [(0, 600)] * 100 if settings.engine == "titan" else [(0, 100_000)]
    link.submit("run", plan=plan_to_json(plan(*blocks, per_step=1))); wait(Progress)
print(link.pid, flush=True)
while True:
    link.poll()
    pause(0.01)
"""


KillAgent = Callable[[TrainerSettings, str, int], list[int]]


@pytest.fixture
def kill_agent(tmp_path: Path) -> KillAgent:
    """Kills an agent at a moment of its trainer's life; returns the ids of all processes that it had started."""

    def kill(settings: TrainerSettings, moment: str, ranks: int) -> list[int]:
        (tmp_path / "settings.json").write_text(settings.to_json())
        words = [sys.executable, "-c", _AGENT, str(tmp_path), moment, str(ranks)]
        agent = spawn(words, log=tmp_path / "agent.log", env={"PYTHONPATH": os.pathsep.join(sys.path)})
        until(lambda: (tmp_path / "agent.log").read_text().endswith("\n") or agent.poll() is not None)
        assert agent.poll() is None, (tmp_path / "agent.log").read_text()
        family = descendants(agent.pid)
        assert int((tmp_path / "agent.log").read_text()) in family
        agent.kill_group()
        return family

    return kill


@pytest.mark.parametrize("moment", ["starting", "waiting", "training"])
def test_the_trainer_ends_when_its_agent_is_killed(
    kill_agent: KillAgent, counting: TrainerSettings, moment: str
) -> None:
    family = kill_agent(counting, moment, 1)
    until(lambda: not any(map(running, family)), patience=10.0)
