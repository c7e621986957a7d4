"""What a site's directory remembers of its batch system, so that short commands add up to one memory.

DIR/NAME/batch/
  lock             held by the one `collect` or `submit` at work
  spent.json       what was asked of the scheduler when (`budget.Spent`), and what probes refused for good
  jobs.json        every job that was submitted, or is about to be (`Entry`)
  facts/           answers that change rarely, as they were printed
  reports/         reports that the coordinator has not got yet

Files are replaced whole and are durable before anybody acts on them: an intent to submit is on the disk before `sbatch` runs.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from crosstrain.collector.budget import Mark, Spent
from crosstrain.disk import disk_faults, sync_directory
from crosstrain.domain.ids import Instant
from crosstrain.domain.plural import counted
from crosstrain.errors import EnvironmentFault, IntegrityError
from crosstrain.storage.durable import make_directory
from crosstrain.wire.placement import ShapeBody

State = Literal["intent", "pending", "running", "ended", "cancelled", "unknown"]


class Entry(BaseModel):
    """One job of this run at this site. Times are UTC milliseconds of this machine.

    Attributes:
        state: `intent` until the scheduler's answer to the submission is known.
        after: job that it waits for, if it was chained.
        eligible_ms: since when nothing but the queue held it back.
        missed_ms: since when neither queue nor accounting tells of it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    shape: ShapeBody
    state: State
    intent_ms: int
    job_id: str | None = None
    after: str | None = None
    submitted_ms: int | None = None
    eligible_ms: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    missed_ms: int | None = None

    @property
    def open(self) -> bool:
        """Whether it is in the queue or runs, as far as is known."""
        return self.state in ("pending", "running")


class Jobs(BaseModel):
    """Contents of jobs.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    entries: tuple[Entry, ...] = ()

    def of(self, name: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.name == name), None)

    def put(self, *changed: Entry) -> Jobs:
        """With these entries in the place of those of the same names; new ones come last."""
        names = {entry.name for entry in changed}
        known = {entry.name for entry in self.entries}
        by_name = {entry.name: entry for entry in changed}
        kept = [by_name.get(entry.name, entry) for entry in self.entries]
        return Jobs(entries=(*kept, *(by_name[name] for name in by_name if name in names - known)))

    def without(self, name: str) -> Jobs:
        return Jobs(entries=tuple(entry for entry in self.entries if entry.name != name))


class _Mark(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    at: int
    due_at: int
    failures: int = 0


class Learnt(BaseModel):
    """What probes and accounting taught. Times are UTC milliseconds of this machine.

    Attributes:
        refused: shapes that the scheduler refused for good at their last probe, with the reason.
        starts: shape -> when it was probed last, and the start that was named.
        backlog_s: partition -> when its smallest job was probed, and the wait that was named.
        history_at: when accounting was read last.
        history_until: waits of jobs that started by then are reported already.
        runs: jobs of all owners that ended, newest last: owner, time limit in seconds, share of it that they ran.
        runs_until: those that ended by then are among them already.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    refused: dict[str, str] = {}
    starts: dict[str, tuple[int, int]] = {}
    backlog_s: dict[str, tuple[int, float]] = {}
    history_at: int = 0
    history_until: int = 0
    runs: tuple[tuple[str, float, float], ...] = ()
    runs_until: int = 0


class _Spent(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    look: _Mark | None = None
    probes: dict[str, _Mark] = {}
    learnt: Learnt = Learnt()


Document = TypeVar("Document", bound=BaseModel)


class Journal:
    """The directory of one site's batch system.

    Raises:
        EnvironmentFault: it cannot be made or written.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = make_directory(directory, "site.dir")
        self.scripts = make_directory(directory / "scripts", "site.dir")
        self.facts = make_directory(directory / "facts", "site.dir")
        self.reports = make_directory(directory / "reports", "site.dir")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the directory against other commands.

        Raises:
            EnvironmentFault: another one is at work.
        """
        path = self.directory / "lock"
        with disk_faults(path), path.open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise EnvironmentFault(
                    f"Another `crosstrain collect` or `submit` is at work in {self.directory}.",
                    "wait until it ends; the next one does what this one would have done",
                ) from None
            yield

    def jobs(self) -> Jobs:
        """Raises IntegrityError if jobs.json is not what this program wrote: a guess could submit a job twice."""
        return self._read("jobs.json", Jobs) or Jobs()

    def keep_jobs(self, jobs: Jobs) -> None:
        """Returns when the jobs are on the disk."""
        write_whole(self.directory / "jobs.json", jobs.model_dump_json(indent=1).encode())

    def spent(self) -> tuple[Spent, Learnt]:
        """What was asked and what it taught; nothing, if the file is damaged: then a question is asked once too often."""
        try:
            found = self._read("spent.json", _Spent) or _Spent()
        except IntegrityError:
            found = _Spent()
        probes = {name: _out(mark) for name, mark in found.probes.items()}
        spent = Spent(None if found.look is None else _out(found.look), probes)
        return spent, found.learnt

    def keep_spent(self, spent: Spent, learnt: Learnt) -> None:
        document = _Spent(
            look=None if spent.look is None else _in(spent.look),
            probes={name: _in(mark) for name, mark in spent.probes.items()},
            learnt=learnt,
        )
        write_whole(self.directory / "spent.json", document.model_dump_json().encode())

    def _read(self, name: str, kind: type[Document]) -> Document | None:
        path = self.directory / name
        try:
            return kind.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise EnvironmentFault(f"{path} cannot be read: {error.strerror}.", "check its permissions") from error
        except ValidationError as error:
            raise IntegrityError(
                f"{path} is not what crosstrain wrote ({counted(error.error_count(), 'fault')}).",
                "compare it with the scheduler's queue; move it away to forget every job that was submitted",
            ) from error


def write_whole(path: Path, data: bytes) -> None:
    """Replaces a file; it and its name are durable on return.

    Raises:
        EnvironmentFault: the disk does not let us.
    """
    part = path.with_name(f"{path.name}.part")
    with disk_faults(path):
        with part.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        part.replace(path)
        sync_directory(path.parent)


def _out(mark: _Mark) -> Mark:
    return Mark(Instant(mark.at), Instant(mark.due_at), mark.failures)


def _in(mark: Mark) -> _Mark:
    return _Mark(at=mark.at, due_at=mark.due_at, failures=mark.failures)
