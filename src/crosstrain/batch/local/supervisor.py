"""One job's supervisor: waits for room, runs the script as a process group, ends it at its walltime, writes how it ended."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crosstrain.batch.command import Child, spawn
from crosstrain.batch.local.adapter import END_TIME
from crosstrain.batch.local.jobs import LocalJob, all_jobs
from crosstrain.batch.readings import JobState
from crosstrain.clock import SystemClock, pause
from crosstrain.domain.timeouts import LOCAL_KILL_S, LOCAL_LOOK_S


def supervise(job: LocalJob, nodes: int) -> None:
    """Runs a job from submission to end."""
    with job.supervised():
        while not job.cancelled and not _may_start(job, nodes):
            pause(LOCAL_LOOK_S)
        if job.cancelled:
            job.note("end", {"state": JobState.CANCELLED.value, "at": _now(), "code": None})
            return
        state, code = _run(job)
        job.note("end", {"state": state.value, "at": _now(), "code": code})


def _now() -> float:
    return SystemClock().now() / 1000


@contextmanager
def _decision(directory: Path) -> Iterator[None]:
    with (directory / "decide").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _may_start(job: LocalJob, nodes: int) -> bool:
    """First come, first served: nobody waits ahead, what it comes after is over, and its nodes are free. Then it is started,
    as far as the others can see.
    """
    directory, asked = job.directory.parent, job.asked
    with _decision(directory):
        others = [each for each in all_jobs(directory) if each.asked.id != asked.id]
        states = {each.asked.id: each.state() for each in others}
        if any(not states[before].over for before in asked.after if before in states):
            return False
        if any(each.asked.id < asked.id and _waits(each, states) for each in others):
            return False
        taken = sum(each.asked.nodes for each in others if states[each.asked.id] is JobState.RUNNING)
        if taken + asked.nodes > nodes:
            return False
        job.note("start", _now())
        return True


def _waits(job: LocalJob, states: dict[int, JobState]) -> bool:
    asked = job.asked
    ready = all(states.get(before, JobState.UNKNOWN).over for before in asked.after if before in states)
    return states[asked.id] is JobState.PENDING and ready


def _run(job: LocalJob) -> tuple[JobState, int | None]:
    asked = job.asked
    begun = SystemClock().perf()
    environment = {END_TIME: str(int(_now() + asked.walltime_s)), "CROSSTRAIN_LOCAL_JOB_ID": str(asked.id)}
    child = spawn(["/bin/bash", asked.script], env=environment, log=Path(asked.log), cwd=Path(asked.script).parent)
    drained = False
    try:
        while (code := child.wait(LOCAL_LOOK_S)) is None:
            spent = SystemClock().perf() - begun
            if job.cancelled:
                return JobState.CANCELLED, _end(child)
            if spent >= asked.walltime_s:
                return JobState.TIMEOUT, _end(child)
            if not drained and asked.walltime_s - spent <= asked.drain_s < asked.walltime_s:
                # The script has become its program; the signal is for it alone, as Slurm's --signal=B: is.
                drained = True
                os.kill(child.pid, signal.SIGUSR1)
    finally:
        child.kill_group()
    return (JobState.COMPLETED if code == 0 else JobState.FAILED), code


def _end(child: Child) -> int | None:
    child.signal(signal.SIGTERM)
    return child.wait(LOCAL_KILL_S)
