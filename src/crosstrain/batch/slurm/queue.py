"""`squeue`: the queue, and the backfill plan for jobs in it. Pure.

A job that is not listed is UNKNOWN: Slurm forgets ended jobs after MinJobAge (300 s), and a private queue never showed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo
from functools import partial

from crosstrain.batch.printed import Output
from crosstrain.batch.readings import JobRow, Listing, Problem
from crosstrain.batch.slurm.guess import guess_columns
from crosstrain.batch.slurm.job_rows import NAMES, job_row
from crosstrain.batch.slurm.messages import failed, is_message
from crosstrain.batch.tables import SEPARATOR, Table, read_table

FIELDS = (
    ("%i", "id"), ("%T", "state"), ("%P", "partition"), ("%D", "nodes"), ("%C", "processors"), ("%l", "limit"),
    ("%M", "elapsed"), ("%V", "submit"), ("%S", "start"), ("%e", "end"), ("%Q", "priority"), ("%u", "user"),
    ("%Y", "sched"), ("%r", "reason"), ("%j", "name"),
)  # fmt: skip
"""Format letters of squeue and their canonical columns; the name comes last, since it may hold anything."""

LETTERS = {
    "i": "id", "A": "id", "F": "id", "t": "state", "T": "state", "r": "reason", "R": "where", "u": "user",
    "D": "nodes", "C": "processors", "P": "partition", "l": "limit", "M": "elapsed", "S": "start", "j": "name",
    "V": "submit", "e": "end", "Q": "priority", "Y": "sched", "B": "exec_host", "N": "nodelist", "q": "qos",
    "a": "account", "L": "left", "p": "priority_share",
}  # fmt: skip
"""All format letters that are read, for outputs of foreign formats."""

COLUMNS = tuple(column for _, column in FIELDS)
FORMAT = SEPARATOR.join(letter for letter, _ in FIELDS)


def queue_command(*, user: str | None = None, states: Sequence[str] = ()) -> list[str]:
    """All jobs that this account may see, or those of one user; array tasks that wait stay in one row."""
    chosen = ["-u", user] if user else ["-a"]
    return ["squeue", "-h", *chosen, *(["-t", ",".join(states)] if states else []), "-o", FORMAT]


def start_command(*, user: str | None = None, jobs: Sequence[str] = ()) -> list[str]:
    """Pending jobs with the start that the backfill plan has for them."""
    chosen = ["-j", ",".join(jobs)] if jobs else (["-u", user] if user else ["-a"])
    return ["squeue", "-h", "--start", *chosen, "-o", FORMAT]


def read_queue(
    output: Output, zone: tzinfo | None = None, now: datetime | None = None, given: Sequence[str] = ()
) -> Listing[JobRow]:
    """Reads the rows of `queue_command` or `start_command`, or any other squeue output with `given` columns or a header."""
    failure = failed(output)
    table = queue_table(output, given)
    rows: list[JobRow] = []
    problems = list(table.problems)
    for line in table.rows:
        try:
            rows.append(job_row(line.cells, zone, now, line.cluster))
        except ValueError as error:
            problems.append(Problem(line.number, line.text.strip(), str(error)))
    return Listing(tuple(rows), tuple(problems), failure)


def queue_table(output: Output, given: Sequence[str] = ()) -> Table:
    """The rows as text."""
    return read_table(output.stdout, NAMES, partial(guess_columns, own=COLUMNS), given=given, error=is_message)


def columns_of(text: str) -> list[str]:
    """Canonical columns of a squeue format (``%i|%t``) or of a list of names (``jobid,state``)."""
    if "%" not in text:
        words = [word.partition(":")[0].partition("%")[0].strip().lower() for word in text.replace("|", ",").split(",")]
        return [NAMES.get(word, word) for word in words]
    letters = [part.lstrip(".0123456789")[:1] for part in text.split("%")[1:]]
    return [LETTERS.get(letter, "-") for letter in letters]
