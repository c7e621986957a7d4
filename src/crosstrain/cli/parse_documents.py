"""What the JSON documents of all kinds have in common: failures, times, rows of jobs. The keys: docs/guides/schedulers.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

from crosstrain.batch.explanations import explained
from crosstrain.batch.printed import Output
from crosstrain.batch.readings import ArrayTasks, Failure, JobRow, Listing, Retry, Submission
from crosstrain.batch.times import Timestamp

Document = dict[str, Any]
_RETRYABLE: dict[Retry, bool | str] = {Retry.LATER: True, Retry.MAYBE: "maybe", Retry.NEVER: False}


@dataclass(frozen=True, slots=True)
class Context:
    """What an output does not say of itself.

    Attributes:
        zone: of times without one; None leaves them as they are.
        now: when the output was printed, local time.
        columns: the format that it was asked for with, empty if unknown.
    """

    zone: tzinfo | None = None
    now: datetime | None = None
    columns: str = ""


Reader = Callable[[Output, Context], Document]


def failure_document(failure: Failure | None) -> Document:
    """Why there is no answer; all keys null where there is one."""
    if failure is None:
        return {"error_kind": None, "retryable": None, "scope": None, "detail": None, "means": None, "fix": None}
    told = explained(failure)
    return {
        "error_kind": failure.kind,
        "retryable": _RETRYABLE[failure.retry],
        "scope": failure.scope.value,
        "detail": failure.detail,
        "back_off": failure.kind == "rate_limited",
        "submission_may_exist": failure.submission_may_exist,
        "means": told.means,
        "fix": told.fix,
    }


def when(name: str, moment: Timestamp | None) -> Document:
    """A time as printed or in UTC, and its epoch where that is known."""
    if moment is None:
        return {name: None}
    return {name: moment.text} | ({f"{name}_epoch": moment.epoch} if moment.epoch is not None else {})


def submission_document(found: Submission) -> Document:
    """What became of a submission."""
    ids = [int(job) if job.isdecimal() else job for job in found.job_ids]
    document: Document = {
        "outcome": found.outcome.value,
        "job_id": ids[-1] if ids else None,
        "job_ids": ids,
        "cluster": found.cluster,
        "start": None,
        "node_count": None,
        "processors": None,
        "partition": None,
        "warnings": list(found.warnings),
        "warnings_count": len(found.warnings),
        "banner": found.banner,
        **failure_document(found.failure),
    }
    if found.balance is not None:
        document["side_information"] = {
            "allocation_hours": found.balance.allocation_hours,
            "balance_hours": found.balance.balance_hours,
        }
    return document


def listing_document(listing: Listing[Any], rows: Sequence[Document], columns: str | None = None) -> Document:
    """Rows, the lines that could not be read, and the failure of the command if it failed."""
    document: Document = {
        "rows": list(rows),
        "error": listing.failure.kind if listing.failure else None,
        "problems": [{"line": each.line, "text": each.text, "why": each.why} for each in listing.problems],
    }
    if columns is not None:
        document["columns_from"] = columns
    return document | (failure_document(listing.failure) if listing.failure else {})


def job_document(row: JobRow, state: str) -> Document:
    """A job; `state` is the scheduler's word, `meaning` ours."""
    return {
        "job_id": row.job_id,
        "state": state,
        "meaning": row.state.value,
        "component": row.component,
        "array": _array(row.array) if row.array else None,
        "name": row.name,
        "user": row.user,
        "partition": row.partition,
        "cluster": row.cluster,
        "nodes": row.nodes,
        "processors": row.processors,
        **when("submit", row.submit),
        **when("eligible_since", row.eligible),
        **when("start", row.start),
        **when("end", row.end),
        "time_limit_s": row.time_limit_s,
        "unlimited": row.unlimited,
        "reason": row.reason,
    }


def _array(tasks: ArrayTasks) -> Document:
    if tasks.ranges == 1:
        first, last = tasks.indices[0], tasks.indices[-1]
        return {"first": first, "last": last, "throttle": tasks.throttle, "count": len(tasks.indices)}
    return {"indices": list(tasks.indices)} | ({} if tasks.throttle is None else {"throttle": tasks.throttle})
