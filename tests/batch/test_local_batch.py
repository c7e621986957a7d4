"""The local batch system with real processes: queue, order, walltime, drain signal, cancellation, a lost supervisor."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from crosstrain.batch.job import Job, Shape
from crosstrain.batch.local.adapter import Local
from crosstrain.batch.process_tree import descendants
from crosstrain.batch.readings import JobState, Outcome
from crosstrain.batch.scheduler import BatchSystem
from crosstrain.clock import SystemClock, pause

PATIENCE_S = 20.0


class Machine:
    """A local batch system of two nodes in a directory of the test's own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.system = BatchSystem(Local(directory / "jobs", nodes=2))

    def submit(
        self, name: str, command: str, *, nodes: int = 1, walltime_s: int = 60, drain_s: int = 300, after: str = ""
    ) -> str:
        shape = Shape(None, nodes, walltime_s)
        job = Job(
            name, shape, ("bash", "-c", command), self.directory, after=(after,) if after else (), drain_s=drain_s
        )
        submission = self.system.submit(job, self.directory)
        assert submission.outcome is Outcome.SUBMITTED, submission
        return submission.job_ids[0]

    def state(self, job: str) -> JobState:
        return self.system.states([job])[0][job]

    def wait(self, job: str, *states: JobState) -> JobState:
        clock = SystemClock()
        until = clock.perf() + PATIENCE_S
        while (state := self.state(job)) not in states:
            assert clock.perf() < until, f"job {job} is still {state}"
            pause(0.05)
        return state

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_job_runs_and_its_end_is_told_by_its_exit_code(machine: Machine) -> None:
    good, bad = machine.submit("good", "echo hello"), machine.submit("bad", "exit 3")
    assert machine.wait(good, JobState.COMPLETED) is JobState.COMPLETED
    assert machine.wait(bad, JobState.FAILED) is JobState.FAILED
    assert machine.log("good") == "hello\n"
    row = next(row for row in machine.system.states([good])[1].rows if row.job_id == good)
    assert row.name == "good"
    assert row.wait_s is not None
    assert 0 <= row.wait_s < PATIENCE_S


def test_jobs_wait_for_nodes_in_the_order_of_submission(machine: Machine) -> None:
    first = machine.submit("first", "while [ ! -e go ]; do sleep 0.05; done", nodes=2)
    machine.wait(first, JobState.RUNNING)
    second, third = machine.submit("second", "date +%s%N", nodes=2), machine.submit("third", "date +%s%N")
    assert {row.job_id: row.state for row in machine.system.queue().rows} == {
        first: JobState.RUNNING,
        second: JobState.PENDING,
        third: JobState.PENDING,
    }
    (machine.directory / "go").touch()
    machine.wait(third, JobState.COMPLETED)
    assert int(machine.log("second")) < int(machine.log("third"))
    assert machine.system.queue().rows == ()


def test_job_after_another_starts_when_that_one_ended_however(machine: Machine) -> None:
    first = machine.submit("first", "exit 1")
    second = machine.submit("second", "echo then", after=first)
    machine.wait(second, JobState.COMPLETED)
    assert machine.state(first) is JobState.FAILED


def test_walltime_drains_first_and_then_ends_the_whole_group(machine: Machine) -> None:
    stubborn = "trap 'echo drain' USR1; trap 'echo term' TERM; sleep 300 & echo $!; while :; do wait; [ $SECONDS -gt 60 ] && exit; done"
    job = machine.submit("stubborn", stubborn, walltime_s=2, drain_s=1)
    assert machine.wait(job, JobState.TIMEOUT) is JobState.TIMEOUT
    child, *said = machine.log("stubborn").splitlines()
    assert said[0] == "drain"
    assert "term" in said
    assert not Path(f"/proc/{child}").exists()


def test_cancelled_jobs_do_not_start_and_do_not_stay(machine: Machine) -> None:
    first = machine.submit("first", "exec sleep 300", nodes=2)
    second = machine.submit("second", "echo never")
    machine.wait(first, JobState.RUNNING)
    machine.system.cancel([first, second])
    machine.wait(first, JobState.CANCELLED)
    machine.wait(second, JobState.CANCELLED)
    assert not (machine.directory / "second.log").exists()


def test_job_that_does_not_fit_is_refused(machine: Machine) -> None:
    submission = machine.system.submit(Job("big", Shape(None, 3, 60), ("true",), machine.directory), machine.directory)
    assert submission.outcome is Outcome.REFUSED
    assert submission.failure is not None
    assert submission.failure.kind == "node_count"


def test_job_whose_supervisor_died_and_one_never_seen_are_unknown(machine: Machine) -> None:
    job = machine.submit("orphan", "echo $PPID $$; exec sleep 300")
    machine.wait(job, JobState.RUNNING)
    clock = SystemClock()
    until = clock.perf() + PATIENCE_S
    while not (machine.directory / "orphan.log").exists() or len(machine.log("orphan").split()) < 2:
        assert clock.perf() < until
        pause(0.05)
    supervisor, child = (int(word) for word in machine.log("orphan").split())
    assert child in descendants(supervisor)
    os.kill(supervisor, signal.SIGKILL)
    try:
        machine.wait(job, JobState.UNKNOWN)
        assert machine.state("999") is JobState.UNKNOWN
    finally:
        os.kill(child, signal.SIGKILL)
