"""LSF's `bjobs`. Pure; reading alone, crosstrain does not submit to LSF.

Times have no year unless LSB_DISPLAY_YEAR=Y. Letters behind a finish time: L run limit, E estimate, X over its estimate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from crosstrain.batch.printed import Output, clean
from crosstrain.batch.readings import Failure, JobState, Listing, Problem, Retry, Scope
from crosstrain.batch.tables import read_table

STATES = {
    "PEND": JobState.PENDING, "WAIT": JobState.PENDING, "PROV": JobState.PENDING, "FWD_PEND": JobState.PENDING,
    "PSUSP": JobState.PENDING, "RUN": JobState.RUNNING, "USUSP": JobState.SUSPENDED, "SSUSP": JobState.SUSPENDED,
    "DONE": JobState.COMPLETED, "EXIT": JobState.FAILED, "ZOMBI": JobState.UNKNOWN, "UNKWN": JobState.UNKNOWN,
}  # fmt: skip

_NAMES = {
    "jobid": "id", "id": "id", "user": "user", "stat": "stat", "queue": "queue", "from_host": "from_host",
    "exec_host": "exec_host", "job_name": "name", "name": "name", "submit_time": "submitted", "start_time": "started",
    "finish_time": "finished", "exit_reason": "exit_reason", "slots": "slots", "pend_reason": "pend_reason",
    "estimated_start_time": "estimated",
}  # fmt: skip
_DATE = re.compile(r"[A-Z][a-z]{2} +\d{1,2} +\d\d:\d\d(?: +\d{4})?(?: +[LEX])?")


@dataclass(frozen=True, slots=True)
class LsfRow:
    """A job; times as printed, without their letter."""

    job_id: str
    state: JobState
    state_word: str
    queue: str | None = None
    user: str | None = None
    name: str | None = None
    submit_text: str | None = None
    start_text: str | None = None
    killed_at_limit: bool = False


def read_bjobs(output: Output, given: Sequence[str] = ()) -> Listing[LsfRow]:
    """Reads bjobs: its default table, or `-o` columns with a header, or without one as far as they can be told."""
    table = read_table(output.stdout, _NAMES, _guess, given=given, error=_is_message, aligned=True)
    rows: list[LsfRow] = []
    problems = list(table.problems)
    for line in table.rows:
        cells = line.cells
        if not re.fullmatch(r"\d+(?:\[\d+\])?", cells.get("id", "")):
            problems.append(Problem(line.number, line.text.strip(), "no job id at its start"))
            continue
        state = STATES.get(cells.get("stat", ""), JobState.UNKNOWN)
        limit = "TERM_RUNLIMIT" in line.text
        rows.append(
            LsfRow(
                cells["id"],
                JobState.TIMEOUT if limit and state is JobState.FAILED else state,
                cells.get("stat", ""),
                _set(cells.get("queue")),
                _set(cells.get("user")),
                _set(cells.get("name")),
                _when(cells.get("submitted")),
                _when(cells.get("started") or cells.get("estimated")),
                limit,
            )
        )
    failure = None if output.exit_code == 0 and not output.timed_out else _failure(output)
    return Listing(tuple(rows), tuple(problems), failure)


def _is_message(line: str) -> bool:
    return (
        re.match(r"\s*(?:No (?:unfinished )?job found|Job <\S+> is not found|LSF is down|Cannot connect)", line, re.I)
        is not None
    )


def _failure(output: Output) -> Failure:
    said = clean(output.both).strip().splitlines()
    lower = clean(output.both).lower()
    if output.timed_out or "lsf is down" in lower or "cannot connect" in lower or "please wait" in lower:
        return Failure("controller_unreachable", Retry.LATER, Scope.SITE, said[-1] if said else None)
    if "not found" in lower or "no unfinished job" in lower or "no job found" in lower:
        return Failure("unknown_job", Retry.NEVER, Scope.CALLER, said[-1])
    return Failure("unknown", Retry.MAYBE, Scope.SITE, said[-1] if said else None)


def _set(text: str | None) -> str | None:
    return None if text in (None, "", "-") else text


def _when(text: str | None) -> str | None:
    text = _set(text)
    return None if text is None else re.sub(r" +[LEX]$", "", text)


def _guess(rows: Sequence[Sequence[str]]) -> list[str]:
    """Without a header: id first, the state by its words; of the dates the last is the submission, the one before the start."""
    width = max((len(row) for row in rows), default=0)
    table = [[cell.strip() for cell in row] + [""] * (width - len(row)) for row in rows]
    columns = [[row[index] for row in table] for index in range(width)]
    names = ["-"] * width
    if width:
        names[0] = "id"
    for index, cells in enumerate(columns):
        if "stat" not in names and all(cell in STATES for cell in cells):
            names[index] = "stat"
    dates = [
        index
        for index, cells in enumerate(columns)
        if any(_DATE.fullmatch(cell) for cell in cells)
        and all(_DATE.fullmatch(cell) or cell in ("-", "") for cell in cells)
    ]
    order = ("submitted", "started", "finished") if len(dates) > 1 else ("submitted",)
    for index, name in zip(reversed(dates), order, strict=False):
        names[index] = name
    if names[-1:] == ["-"]:
        names[-1] = "name"
    return names
