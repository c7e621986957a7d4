"""What a batch system must be able to say: argv builders and parsers, without I/O.

`scheduler.BatchSystem` runs the commands; the suite in tests/batch holds for every adapter. A batch system has what it has:
`probe` and `ended` raise `NotOffered` where there is no such command, and the caller goes on with what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Protocol

from crosstrain.batch.job import Job, Shape
from crosstrain.batch.printed import Output
from crosstrain.batch.readings import JobRow, Listing, Probe, Submission


class NotOffered(Exception):
    """This batch system has no such command."""


class Adapter(Protocol):
    """Commands of one batch system and how their output reads."""

    @property
    def name(self) -> str:
        """Such as ``slurm``."""
        ...

    def script(self, job: Job) -> str:
        """The job's script. Raises UsageError for a job that cannot be one."""
        ...

    def submit(self, job: Job, script: PurePath) -> list[str]:
        """Submits a script that lies at a path."""
        ...

    def read_submit(self, output: Output) -> Submission: ...

    def jobs(self, ids: Sequence[str]) -> list[str]:
        """Rows of these jobs. One that has no row is UNKNOWN, not over."""
        ...

    def read_jobs(self, output: Output) -> Listing[JobRow]: ...

    def ended(self, ids: Sequence[str]) -> list[str]:
        """Rows of jobs that `jobs` has forgotten, from accounting. Raises NotOffered."""
        ...

    def read_ended(self, output: Output) -> Listing[JobRow]: ...

    def queue(self, user: str | None) -> list[str]:
        """All visible jobs, or those of a user."""
        ...

    def read_queue(self, output: Output) -> Listing[JobRow]: ...

    def named(self, name: str) -> list[str]:
        """Rows of jobs of this name, live or ended a moment ago; `read_jobs` reads them."""
        ...

    def named_ended(self, name: str, since: int) -> list[str]:
        """Rows of jobs of this name since an epoch second, from accounting; `read_ended` reads them. Raises NotOffered."""
        ...

    def cancel(self, ids: Sequence[str]) -> list[str]: ...

    def probe(self, shape: Shape) -> list[str]:
        """A dry run of a shape. Raises NotOffered."""
        ...

    def read_probe(self, output: Output) -> Probe: ...
