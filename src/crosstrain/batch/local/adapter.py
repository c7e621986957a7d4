"""The local batch system as an `Adapter`: its clients are `python -m crosstrain.batch.local`. Pure."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from crosstrain.batch.adapter import NotOffered
from crosstrain.batch.job import Job, Shape, script
from crosstrain.batch.printed import Output, numbered_lines
from crosstrain.batch.readings import (
    Failure,
    JobRow,
    JobState,
    Listing,
    Outcome,
    Probe,
    Problem,
    Retry,
    Scope,
    Submission,
)
from crosstrain.batch.times import Timestamp, from_epoch
from crosstrain.domain.plural import counted

END_TIME = "CROSSTRAIN_LOCAL_END_TIME"
"""Set in the job: its end in epoch seconds."""


@dataclass(frozen=True, slots=True)
class Local:
    """Jobs as process groups of this machine.

    Attributes:
        directory: where jobs are kept; one batch system per directory.
        nodes: nodes that it pretends to have; more wait in the queue.
    """

    directory: Path
    nodes: int = 4
    name: str = "local"

    def script(self, job: Job) -> str:
        return script(job, (), END_TIME)

    def submit(self, job: Job, script: PurePath) -> list[str]:
        options = [
            f"--nodes={self.nodes}",
            f"--name={job.name}",
            f"--take={job.shape.nodes}",
            f"--walltime={job.shape.walltime_s}",
            f"--drain={job.drain_s}",
            f"--log={job.log or job.directory / f'{job.name}.log'}",
            *(f"--after={each}" for each in job.after),
        ]
        return [*self._client("submit"), *options, str(script)]

    def read_submit(self, output: Output) -> Submission:
        ids = [line.strip() for _, line in numbered_lines(output.stdout) if line.strip().isdecimal()]
        if output.timed_out:
            failure = Failure("timed_out", Retry.LATER, Scope.SITE, submission_may_exist=True)
            return Submission(Outcome.UNREACHABLE, failure=failure)
        if output.exit_code == 0 and ids:
            return Submission(Outcome.SUBMITTED, (ids[-1],))
        said = next((line.strip() for _, line in numbered_lines(output.stderr)), None)
        if output.exit_code == 2:
            return Submission(Outcome.REFUSED, failure=Failure("node_count", Retry.NEVER, Scope.SHAPE, said))
        return Submission(Outcome.UNPARSEABLE, failure=Failure("no_verdict", Retry.MAYBE, Scope.CALLER, said))

    def jobs(self, ids: Sequence[str]) -> list[str]:
        return [*self._client("jobs"), *ids]

    def read_jobs(self, output: Output) -> Listing[JobRow]:
        rows: list[JobRow] = []
        problems: list[Problem] = []
        for number, line in numbered_lines(output.stdout):
            try:
                rows.append(_row(json.loads(line)))
            except (ValueError, KeyError, TypeError, RecursionError):
                problems.append(Problem(number, line[:200], "expected a job as JSON"))
        failed = output.exit_code != 0 or output.timed_out
        failure = Failure("unknown", Retry.MAYBE, Scope.SITE, output.stderr.strip() or None) if failed else None
        return Listing(tuple(rows), tuple(problems), failure)

    def ended(self, ids: Sequence[str]) -> list[str]:
        raise NotOffered(f"no job is forgotten (asked for {len(ids)} more)")

    def read_ended(self, output: Output) -> Listing[JobRow]:
        return self.read_jobs(output)

    def queue(self, user: str | None) -> list[str]:  # noqa: ARG002 one user is all there is
        return [*self._client("jobs"), "--live"]

    def read_queue(self, output: Output) -> Listing[JobRow]:
        return self.read_jobs(output)

    def named(self, name: str) -> list[str]:  # noqa: ARG002 there are few jobs; the reader chooses
        return self._client("jobs")

    def named_ended(self, name: str, since: int) -> list[str]:
        raise NotOffered(f"no job is forgotten (asked for {name} since {since})")

    def cancel(self, ids: Sequence[str]) -> list[str]:
        return [*self._client("cancel"), *ids]

    def probe(self, shape: Shape) -> list[str]:
        raise NotOffered(f"the local batch system has no dry run (asked for {counted(shape.nodes, 'node')})")

    def read_probe(self, output: Output) -> Probe:
        raise NotOffered(f"the local batch system has no dry run (given {len(output.stdout)} characters)")

    def _client(self, verb: str) -> list[str]:
        return [sys.executable, "-m", "crosstrain.batch.local", verb, f"--dir={self.directory}"]


def _row(job: dict[str, Any]) -> JobRow:
    return JobRow(
        job_id=str(job["id"]),
        state=JobState(job["state"]),
        state_word=job["state"],
        id_text=str(job["id"]),
        name=job["name"],
        nodes=job["nodes"],
        submit=_when(job["submit"]),
        eligible=_when(job["submit"]),
        start=_when(job["start"]),
        end=_when(job["end"]),
        time_limit_s=job["walltime_s"],
        reason=job["reason"],
    )


def _when(seconds: float | None) -> Timestamp | None:
    return None if seconds is None else from_epoch(seconds)
