"""Flux: `flux jobs --json`, `flux job list`, and the id of a submission. Pure.

Only the head of the queue has an estimate, and it goes stale: it is the plan of the moment it was made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from crosstrain.batch.printed import Output, clean, numbered_lines
from crosstrain.batch.readings import Failure, JobRow, JobState, Listing, Outcome, Problem, Retry, Scope, Submission
from crosstrain.batch.times import Timestamp, from_epoch

_WORDS = {
    "NEW": JobState.PENDING, "DEPEND": JobState.PENDING, "PRIORITY": JobState.PENDING, "SCHED": JobState.PENDING,
    "PENDING": JobState.PENDING, "RUN": JobState.RUNNING, "CLEANUP": JobState.RUNNING, "RUNNING": JobState.RUNNING,
    "COMPLETED": JobState.COMPLETED, "FAILED": JobState.FAILED, "CANCELED": JobState.CANCELLED,
    "TIMEOUT": JobState.TIMEOUT,
}  # fmt: skip
_BITS = {1: "NEW", 2: "DEPEND", 4: "PRIORITY", 8: "SCHED", 16: "RUN", 32: "CLEANUP", 64: "INACTIVE"}
"""Of RFC 21; before Flux 0.23 4 was SCHED, which is pending all the same."""
_RESULTS = {1: "COMPLETED", 2: "FAILED", 4: "CANCELED", 8: "TIMEOUT"}
_ID = re.compile(r"(?:ƒ|f)[1-9A-HJ-NP-Za-km-z]{6,16}|\d{6,20}")


@dataclass(frozen=True, slots=True)
class FluxRow:
    """A job, with the scheduler's estimate in epoch seconds if it has one."""

    row: JobRow
    estimate: float | None

    @property
    def wait_from_submit_s(self) -> float | None:
        """Seconds from submission to the estimated start."""
        submit = self.row.submit
        return None if self.estimate is None or submit is None or submit.epoch is None else self.estimate - submit.epoch


def read_jobs(output: Output) -> Listing[FluxRow]:
    """Reads JSON about jobs: one object per line, a list, or an object with `jobs`."""
    rows: list[FluxRow] = []
    problems: list[Problem] = []
    for number, document in _documents(output.stdout):
        row = _row(document) if isinstance(document, dict) else None
        if row is None:
            problems.append(Problem(number, str(document)[:200], "expected a JSON object with an id"))
        else:
            rows.append(row)
    failure = None if output.exit_code == 0 and not output.timed_out else refused_by(output)
    return Listing(tuple(rows), tuple(problems), failure)


def _documents(text: str) -> Iterator[tuple[int, Any]]:
    whole = _loads(clean(text))
    if whole is not None:
        found = whole.get("jobs", [whole]) if isinstance(whole, dict) else whole
        yield from ((1, document) for document in (found if isinstance(found, list) else [found]))
        return
    for number, line in numbered_lines(text):
        document = _loads(line)
        yield number, line if document is None else document


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _row(job: dict[str, Any]) -> FluxRow | None:
    if "id" not in job or not isinstance(job["id"], int | str) or isinstance(job["id"], bool):
        return None
    annotations = job.get("annotations")
    sched = annotations.get("sched", {}) if isinstance(annotations, dict) else {}
    sched = sched if isinstance(sched, dict) else {}
    word = _word(job)
    duration = _number(job.get("duration"))
    row = JobRow(
        job_id=str(job["id"]),
        state=_WORDS.get(word, JobState.UNKNOWN),
        state_word=word,
        id_text=str(job["id"]),
        name=str(job["name"]) if job.get("name") else None,
        user=str(job["username"]) if job.get("username") else None,
        partition=_text(job.get("queue")) or _text(sched.get("queue")),
        nodes=job["nnodes"] if isinstance(job.get("nnodes"), int) else None,
        submit=_moment(job.get("t_submit")),
        eligible=_moment(job.get("t_depend")),
        start=_moment(job.get("t_run")),
        end=_moment(job.get("t_inactive")),
        time_limit_s=round(duration) if duration else None,
        priority=_number(job.get("priority")),
        reason=_text(sched.get("reason_pending")),
    )
    return FluxRow(row, _number(sched.get("t_estimate")))


def _word(job: dict[str, Any]) -> str:
    state = job.get("state", job.get("status", ""))
    word = _BITS.get(state, str(state)) if isinstance(state, int) else str(state).upper()
    if word == "INACTIVE":
        result = job.get("result", job.get("status", word))
        word = _RESULTS.get(result, word) if isinstance(result, int) else str(result).upper()
    return word


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if -1e12 < value < 1e12 else None


def _moment(value: Any) -> Timestamp | None:
    number = _number(value)
    return from_epoch(number) if number is not None and 0 < number < 1e11 else None


def refused_by(output: Output) -> Failure:
    """Why a command failed."""
    said = next((line.strip() for _, line in reversed(list(numbered_lines(output.both)))), None)
    lower = (said or "").lower()
    if output.timed_out:
        return Failure("timed_out", Retry.LATER, Scope.SITE, submission_may_exist=True)
    for sentence, kind, retry, scope in (
        ("connect", "controller_unreachable", Retry.LATER, Scope.SITE),
        ("broker", "controller_unreachable", Retry.LATER, Scope.SITE),
        ("duration", "time_limit", Retry.NEVER, Scope.SHAPE),
        ("unsatisfiable", "node_count", Retry.NEVER, Scope.SHAPE),
        ("queue", "bad_partition", Retry.NEVER, Scope.SHAPE),
        ("bank", "bad_account", Retry.NEVER, Scope.SITE),
        ("unknown job", "unknown_job", Retry.NEVER, Scope.CALLER),
        ("unrecognized arguments", "bad_option", Retry.NEVER, Scope.CALLER),
    ):
        if sentence in lower:
            return Failure(kind, retry, scope, said)
    return Failure("unknown", Retry.MAYBE, Scope.SITE, said)


def read_submission(output: Output) -> Submission:
    """Reads `flux batch`: the last line that is nothing but an id."""
    lines = [line.strip() for _, line in numbered_lines(output.stdout)]
    ids = [line for line in lines if _ID.fullmatch(line)]
    if ids and output.exit_code == 0 and not output.timed_out:
        return Submission(Outcome.SUBMITTED, (ids[-1],), banner=len(ids) < len(lines))
    if output.exit_code == 0 and not output.timed_out:
        failure = Failure("no_verdict", Retry.NEVER, Scope.CALLER, lines[-1] if lines else None)
        return Submission(Outcome.UNPARSEABLE, failure=failure)
    failure = refused_by(output)
    if failure.kind == "unknown":
        return Submission(Outcome.UNPARSEABLE, failure=failure)
    away = failure.kind in ("controller_unreachable", "timed_out")
    return Submission(Outcome.UNREACHABLE if away else Outcome.REFUSED, failure=failure)
