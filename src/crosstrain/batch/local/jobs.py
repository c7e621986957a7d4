"""Jobs of the local batch system as directories: what was asked, when it started, how it ended.

A job's supervisor holds a lock on its directory while it lives. A job without an end and without that lock has lost its
supervisor, and what became of it is unknown.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from crosstrain.batch.readings import JobState


@dataclass(frozen=True, slots=True)
class Asked:
    """What a submission asked for. Seconds and epoch seconds."""

    id: int
    name: str
    script: str
    log: str
    nodes: int
    walltime_s: int
    drain_s: int
    after: tuple[int, ...]
    submit: float


class LocalJob:
    """One job's directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def asked(self) -> Asked:
        found = json.loads((self.directory / "asked.json").read_text(encoding="utf-8"))
        return Asked(**{**found, "after": tuple(found["after"])})

    def note(self, name: str, value: object) -> None:
        """Writes a fact once, whole or not at all."""
        part = self.directory / f"{name}.part"
        part.write_text(json.dumps(value), encoding="utf-8")
        part.replace(self.directory / f"{name}.json")

    def fact(self, name: str) -> object | None:
        """A fact, None while it is not written."""
        try:
            found: object = json.loads((self.directory / f"{name}.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return found

    @property
    def cancelled(self) -> bool:
        return (self.directory / "cancel").exists()

    def cancel(self) -> None:
        """Asks the supervisor to end the job."""
        (self.directory / "cancel").touch()

    @contextmanager
    def supervised(self) -> Iterator[None]:
        """Held by the supervisor as long as it lives."""
        with (self.directory / "supervisor").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @property
    def has_supervisor(self) -> bool:
        with (self.directory / "supervisor").open("a") as lock:
            try:
                # Shared, so that two who look do not take each other for it.
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def state(self) -> JobState:
        end = self.fact("end")
        if isinstance(end, dict):
            return JobState(end["state"])
        if not self.has_supervisor:
            # It may have ended between the two looks.
            end = self.fact("end")
            return JobState(end["state"]) if isinstance(end, dict) else JobState.UNKNOWN
        return JobState.PENDING if self.fact("start") is None else JobState.RUNNING

    def document(self) -> dict[str, object]:
        """The job for its listing."""
        asked, state, end = self.asked, self.state(), self.fact("end")
        return {
            "id": asked.id,
            "name": asked.name,
            "state": state.value,
            "nodes": asked.nodes,
            "walltime_s": asked.walltime_s,
            "submit": asked.submit,
            "start": self.fact("start"),
            "end": end["at"] if isinstance(end, dict) else None,
            "reason": "Resources" if state is JobState.PENDING else None,
        }


def all_jobs(directory: Path) -> list[LocalJob]:
    """Jobs in the order of their ids."""
    numbers = sorted(int(path.name) for path in directory.iterdir() if path.name.isdecimal())
    jobs = [LocalJob(directory / str(number)) for number in numbers]
    return [job for job in jobs if (job.directory / "asked.json").exists()]


def new_job(directory: Path, **wanted: object) -> LocalJob:
    """Takes the next id."""
    while True:
        number = 1 + max((int(path.name) for path in directory.iterdir() if path.name.isdecimal()), default=0)
        try:
            (directory / str(number)).mkdir()
        except FileExistsError:
            continue
        job = LocalJob(directory / str(number))
        job.note("asked", asdict(Asked(id=number, **wanted)))  # type: ignore[arg-type]
        return job
