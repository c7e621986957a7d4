"""`sacct`: what became of jobs. Pure.

A name can hold the delimiter, so JobName is never asked for; jobs of a plan are found with --name. Submit is overwritten
when a job is requeued, and only -D shows the earlier incarnations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import partial

from crosstrain.batch.printed import Output
from crosstrain.batch.readings import Failure, JobRow, JobState, Listing, Problem, Retry, Scope
from crosstrain.batch.slurm.guess import guess_columns
from crosstrain.batch.slurm.job_rows import NAMES, is_step, job_row
from crosstrain.batch.slurm.messages import failed, is_message
from crosstrain.batch.tables import SEPARATOR, Table, read_table

FIELDS = (
    "JobIDRaw", "State", "Submit", "Eligible", "Start", "End", "ElapsedRaw", "TimelimitRaw", "NNodes", "Partition",
    "User", "Reason",
)  # fmt: skip
COLUMNS = tuple(NAMES[field.lower()] for field in FIELDS)


def accounting_command(
    since: int,
    *,
    until: int | None = None,
    user: str | None = None,
    names: Sequence[str] = (),
    jobs: Sequence[str] = (),
) -> list[str]:
    """Allocations, every incarnation, in a window of epoch seconds; without `user` of everybody that may be seen."""
    command = ["sacct", "-X", "-D", "-n", "-P", f"--delimiter={SEPARATOR}", "-S", _moment(since)]
    command += ["-E", _moment(until)] if until is not None else []
    command += ["-u", user] if user else ["-a"]
    command += [f"--name={','.join(names)}"] if names else []
    command += ["-j", ",".join(jobs)] if jobs else []
    return [*command, "-o", ",".join(FIELDS)]


def _moment(epoch: int) -> str:
    # sacct reads local time; its environment has TZ=UTC.
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@dataclass(frozen=True, slots=True)
class JobHistory:
    """All rows of one job: incarnations of a requeued job in order, or components of a heterogeneous one."""

    job_id: str
    rows: tuple[JobRow, ...]

    @property
    def incarnations(self) -> int:
        """How often the job was queued."""
        return max(Counter(row.id_text for row in self.rows).values())

    @property
    def components(self) -> int:
        """Parts of a heterogeneous job; 1 for an ordinary job."""
        return len({row.id_text for row in self.rows})

    @property
    def final(self) -> JobRow:
        return self.rows[-1]


def histories(rows: Sequence[JobRow]) -> tuple[JobHistory, ...]:
    """Rows by job, in the order of their first row."""
    by_job: dict[str, list[JobRow]] = {}
    for row in rows:
        by_job.setdefault(row.id_text if row.array else row.job_id, []).append(row)
    return tuple(JobHistory(found[0].job_id, tuple(found)) for found in by_job.values())


def usage_ratio(rows: Sequence[JobRow]) -> float | None:
    """Used over requested time of ended jobs, weighted by node-time; None without such a job."""
    counted = [(row.elapsed_s, row.time_limit_s, row.nodes or 1) for row in rows if counts_for_usage(row)]
    asked = sum(limit * nodes for _, limit, nodes in counted if limit)
    used = sum(min(spent, limit) * nodes for spent, limit, nodes in counted if spent and limit)
    return used / asked if asked else None


def counts_for_usage(row: JobRow) -> bool:
    """Whether a row tells how much of the requested time jobs use."""
    return row.usage_ratio is not None and row.state not in (JobState.NODE_FAIL, JobState.PREEMPTED)


def read_accounting(
    output: Output, zone: tzinfo | None = None, now: datetime | None = None, given: Sequence[str] = ()
) -> Listing[JobRow]:
    """Reads the rows of `accounting_command`, or any other sacct output with `given` columns or a header."""
    failure = failed(output)
    table = accounting_table(output, given)
    if failure is None and not output.stdout.strip() and not given:
        # With a header asked for, an empty list still prints it.
        failure = Failure(
            "empty_output", Retry.MAYBE, Scope.SITE, "neither header nor rows: accounting off or not allowed"
        )
    steps = Counter(
        text.partition(".")[0]
        for line in table.rows
        if is_step(text := line.cells.get("id") or line.cells.get("idraw") or "")
    )
    rows: list[JobRow] = []
    problems = list(table.problems)
    for line in table.rows:
        text = line.cells.get("id") or line.cells.get("idraw") or ""
        if is_step(text):
            continue
        try:
            rows.append(job_row(line.cells, zone, now, line.cluster, steps[text]))
        except ValueError as error:
            problems.append(Problem(line.number, line.text.strip(), str(error)))
    return Listing(tuple(rows), tuple(problems), failure)


def accounting_table(output: Output, given: Sequence[str] = ()) -> Table:
    """The rows as text."""
    return read_table(output.stdout, NAMES, partial(guess_columns, own=COLUMNS), given=given, error=is_message)
