"""Moab's and Maui's `showstart`: a reservation-based start. Pure. Reported estimates have been hours off the real minutes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from crosstrain.batch.printed import Output, clean
from crosstrain.batch.readings import Failure, Listing, Problem, Retry, Scope
from crosstrain.batch.times import duration_s

_JOB = re.compile(r"job '?([\w.\[\]-]+)'? requires (\d+) proc(?:essor)?s? for +(\S+)", re.IGNORECASE)
_START = re.compile(r"start in +(-?)([\d:]+) +on +(\S.*\S)", re.IGNORECASE)
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")


@dataclass(frozen=True, slots=True)
class ShowStart:
    """Wait in seconds from when it was asked, 0 for a start in the past; the date as printed, which mostly has no year."""

    job_id: str
    wait_s: int | None
    start_text: str | None
    processors: int | None
    time_limit_s: int | None

    @property
    def year_missing(self) -> bool:
        return self.start_text is not None and not _YEAR.search(self.start_text)


def read_showstart(output: Output) -> Listing[ShowStart]:
    """Reads `showstart JOB`."""
    text = clean(output.both)
    job, start = _JOB.search(text), _START.search(text)
    failure = None if output.exit_code == 0 and not output.timed_out else _failure(output)
    if job is None:
        lines = text.strip().splitlines()
        return Listing((), (Problem(1, lines[-1].strip(), "no job in it"),) if lines else (), failure)
    wait = None if start is None else (0 if start[1] else _duration_s(start[2]))
    row = ShowStart(job[1], wait, start[3] if start else None, int(job[2]), _duration_s(job[3]))
    return Listing((row,), (), failure)


def _duration_s(text: str) -> int | None:
    days, colon, rest = text.partition(":")
    return duration_s(f"{days}-{rest}" if colon and rest.count(":") == 2 else text)


def _failure(output: Output) -> Failure:
    said = clean(output.both).strip().splitlines()
    lower = clean(output.both).lower()
    if output.timed_out or "cannot connect" in lower or "communication error" in lower:
        return Failure("controller_unreachable", Retry.LATER, Scope.SITE, said[-1] if said else None)
    if "invalid job" in lower or "cannot locate job" in lower:
        return Failure("unknown_job", Retry.NEVER, Scope.CALLER, said[-1])
    return Failure("unknown", Retry.MAYBE, Scope.SITE, said[-1] if said else None)
