"""A batch system that can be asked: the one place where an adapter's commands run.

Every command has a deadline, since a client waits for a stuck controller as long as the site's configuration says, and for a
rate limit in silence. No command is repeated here; what may be asked again, and when, is in the reading.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crosstrain.batch.adapter import Adapter, NotOffered
from crosstrain.batch.command import DeadlinePassed, run
from crosstrain.batch.environment import client_environment, submission_environment
from crosstrain.batch.job import Job, Shape
from crosstrain.batch.printed import Output
from crosstrain.batch.readings import JobRow, JobState, Listing, Probe, Submission
from crosstrain.domain.timeouts import SCHEDULER_S
from crosstrain.errors import EnvironmentFault


@dataclass(frozen=True, slots=True)
class Found:
    """What came of looking for a job by its name.

    Attributes:
        row: its newest row; None if there is none.
        queue_answered: the list of live jobs came and was readable: without a row, no live job has the name.
        remembers: so did what tells of ended jobs: without a row, no job ever had the name.
    """

    row: JobRow | None
    queue_answered: bool
    remembers: bool


class BatchSystem:
    """Submits, lists and cancels jobs of one batch system.

    Args:
        environment: this process's environment, from which the clients' is made; SLURM_CONF in it names the cluster.
        prefix: words before every command, such as ``ssh login1``.
    """

    def __init__(
        self,
        adapter: Adapter,
        *,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        deadline_s: float = SCHEDULER_S,
    ) -> None:
        self.adapter = adapter
        self._environment = os.environ if environment is None else environment
        self._prefix = tuple(prefix)
        self._deadline_s = deadline_s

    def submit(self, job: Job, directory: Path) -> Submission:
        """Writes the job's script into a directory and submits it.

        Raises:
            UsageError: the job cannot be one.
            EnvironmentFault: the script cannot be written, or the scheduler's program is missing.
        """
        path = directory / f"{job.name}.sh"
        text = self.adapter.script(job)
        try:
            path.write_text(text, encoding="utf-8")
            path.chmod(0o755)
        except OSError as error:
            raise EnvironmentFault(f"{path} cannot be written: {error.strerror}.", "check the directory") from error
        command = self.adapter.submit(job, path)
        return self.adapter.read_submit(self._run(command, submission_environment(self._environment)))

    def states(self, ids: Sequence[str]) -> tuple[dict[str, JobState], Listing[JobRow]]:
        """The state of each job and the rows it comes from; jobs that left the queue are looked up in accounting.

        UNKNOWN is a job that neither knows: forgotten, private, never there, or nobody answered.
        """
        listing = self.adapter.read_jobs(self.ask(self.adapter.jobs(ids)))
        found = {row.job_id: row.state for row in listing.rows}
        rows = listing.rows
        if missing := [job for job in ids if found.get(job, JobState.UNKNOWN) is JobState.UNKNOWN]:
            with contextlib.suppress(NotOffered):
                ended = self.adapter.read_ended(self.ask(self.adapter.ended(missing)))
                # The last row of a requeued job is its newest incarnation.
                found |= {row.job_id: row.state for row in ended.rows}
                rows += ended.rows
        states = {job: found.get(job, JobState.UNKNOWN) for job in ids}
        return states, Listing(rows, listing.problems, listing.failure)

    def find(self, name: str, since: int, user: str | None = None) -> Found:
        """Looks for a job by its name.

        Args:
            since: epoch seconds before which it cannot have been submitted.
            user: whose job it must be, where the rows tell.
        """
        listing = self.adapter.read_jobs(self.ask(self.adapter.named(name)))
        if row := _named(listing, name, user):
            return Found(row, queue_answered=True, remembers=True)
        answered = listing.failure is None and not listing.problems
        try:
            command = self.adapter.named_ended(name, since)
        except NotOffered:
            return Found(None, queue_answered=answered, remembers=answered)
        ended = self.adapter.read_ended(self.ask(command))
        row = _named(ended, name, user)
        return Found(row, queue_answered=answered, remembers=ended.failure is None and not ended.problems)

    def queue(self, user: str | None = None) -> Listing[JobRow]:
        """All jobs that this account may see, or those of a user."""
        return self.adapter.read_queue(self.ask(self.adapter.queue(user)))

    def cancel(self, ids: Sequence[str]) -> Output:
        """Cancels jobs; those that ended before are no error."""
        return self.ask(self.adapter.cancel(ids))

    def probe(self, shape: Shape) -> Probe:
        """A dry run. Raises NotOffered where there is none."""
        return self.adapter.read_probe(self.ask(self.adapter.probe(shape)))

    def ask(self, command: Sequence[str]) -> Output:
        """Runs a command that only asks or cancels, in the clients' environment.

        Raises:
            EnvironmentFault: its program is missing.
        """
        return self._run(command, client_environment(self._environment))

    def _run(self, command: Sequence[str], environment: Mapping[str, str]) -> Output:
        try:
            done = run([*self._prefix, *command], timeout=self._deadline_s, environment=environment)
        except DeadlinePassed:
            return Output("", "", -9, timed_out=True)
        return Output(done.stdout, done.stderr, done.code)


def _named(listing: Listing[JobRow], name: str, user: str | None) -> JobRow | None:
    """The last row that is not another name's or another user's; accounting was asked for the name and does not print it."""
    rows = [row for row in listing.rows if row.name in (None, name) and (user is None or row.user in (None, user))]
    return rows[-1] if rows else None
