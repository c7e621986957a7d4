"""`qstat -f`, `qstat -f -F json` and `qstat -T`. Pure.

`etime`, not `ctime`, begins the wait: a job with a dependency becomes eligible when it is released. There is no dry run;
an estimate exists only for queued jobs, and only where the site computes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from itertools import zip_longest
from typing import Any

from crosstrain.batch.pbs.refusals import refused_by
from crosstrain.batch.printed import Output, clean, numbered_lines
from crosstrain.batch.readings import JobRow, JobState, Listing, Problem
from crosstrain.batch.times import Timestamp, duration_s, timestamp

STATES = {
    "Q": JobState.PENDING, "H": JobState.PENDING, "W": JobState.PENDING, "T": JobState.PENDING, "M": JobState.PENDING,
    "R": JobState.RUNNING, "E": JobState.RUNNING, "B": JobState.RUNNING, "S": JobState.SUSPENDED, "U": JobState.SUSPENDED,
    "F": JobState.COMPLETED, "C": JobState.COMPLETED, "X": JobState.COMPLETED,
}  # fmt: skip
"""An array that began (B) has tasks running or waiting; F, C and X have ended, how is told by Exit_status."""

WALLTIME_EXIT = -29
"""Exit_status of a job that PBS ended at its walltime (JOB_EXEC_KILL_WALLTIME)."""

_JOB = re.compile(r"Job Id: *(\S+)", re.IGNORECASE)
_PAIR = re.compile(r"\s+([\w.]+) = ?(.*)")
_ID = re.compile(r"\d+(?:\[[\d,-]*\])?(?:\.[\w.-]+)?")
_JSON_GROUP = re.compile(r'"(\w+)"\s*:\s*\{([^{}]*)\}')
_JSON_PAIR = re.compile(r'"([\w.]+)"\s*:\s*"?([^"{}\n,][^"\n]*?)"?\s*(?:,|\n|$)')
_JSON_JOB = re.compile(r'"(\d+(?:\[[\d,-]*\])?\.[\w.-]+)"\s*:\s*(?=\{)')


@dataclass(frozen=True, slots=True)
class EstimateRow:
    """A row of `qstat -T`: resolution of the start is minute, hour, month or year; None without one."""

    row: JobRow
    array: bool
    estimate: Timestamp | None
    estimate_text: str
    resolution: str | None


@dataclass(frozen=True, slots=True)
class PbsRow:
    """A job of `qstat -f`: what it shares with other batch systems, its planned start, and how it ended."""

    row: JobRow
    estimate: Timestamp | None
    exit_status: int | None


def read_full(output: Output, zone: tzinfo | None = None, now: datetime | None = None) -> Listing[PbsRow]:
    """Reads `qstat -f`, as text or JSON."""
    rows: list[PbsRow] = []
    problems: list[Problem] = []
    jobs = _json_jobs(output.stdout) if clean(output.stdout).lstrip().startswith("{") else _text_jobs(output.stdout)
    for number, job, attributes in jobs:
        if not _ID.fullmatch(job):
            problems.append(Problem(number, job[:200], "no job id"))
            continue
        rows.append(_pbs_row(job, attributes, zone, now))
    failure = None if output.exit_code == 0 and not output.timed_out else refused_by(output)
    if failure is None and not rows and output.stdout.strip():
        problems.append(Problem(1, clean(output.stdout).strip()[:200], "no job in it"))
    return Listing(tuple(rows), tuple(problems), failure)


def _pbs_row(job: str, attributes: Mapping[str, str], zone: tzinfo | None, now: datetime | None) -> PbsRow:
    word = attributes.get("job_state", "")
    state = STATES.get(word, JobState.UNKNOWN)
    status = attributes.get("Exit_status", attributes.get("exit_status", ""))
    code = int(status) if re.fullmatch(r"-?\d+", status) else None
    if state is JobState.COMPLETED and code is not None and code != 0:
        state = JobState.TIMEOUT if code == WALLTIME_EXIT else JobState.FAILED
    nodes = attributes.get("Resource_List.nodect", attributes.get("Resource_List.nodes", "")).partition(":")[0]
    limit = attributes.get("Resource_List.walltime", "")

    def when(name: str) -> Timestamp | None:
        return timestamp(attributes.get(name, ""), zone, now)

    row = JobRow(
        job_id=job,
        state=state,
        state_word=word,
        id_text=job,
        name=attributes.get("Job_Name"),
        user=attributes.get("Job_Owner", "").partition("@")[0] or None,
        partition=attributes.get("queue"),
        nodes=int(nodes) if nodes.isdecimal() else None,
        processors=int(cpus) if (cpus := attributes.get("Resource_List.ncpus", "")).isdecimal() else None,
        submit=when("ctime"),
        eligible=when("etime"),
        start=when("stime") or when("start_time"),
        end=when("obittime") or when("comp_time"),
        time_limit_s=int(limit) if limit.isdecimal() else duration_s(limit),
        elapsed_s=duration_s(attributes.get("resources_used.walltime", "")),
        reason=attributes.get("comment"),
    )
    return PbsRow(row, when("estimated.start_time"), code)


def _text_jobs(text: str) -> Iterator[tuple[int, str, dict[str, str]]]:
    job, begun, name = "", 0, ""
    attributes: dict[str, str] = {}
    for number, line in numbered_lines(text):
        if found := _JOB.match(line.strip()):
            if job:
                yield begun, job, attributes
            job, begun, attributes, name = found[1], number, {}, ""
        elif line.startswith("\t") and name:
            # A long value goes on after a tab, cut anywhere.
            attributes[name] += line.lstrip("\t")
        elif found := _PAIR.fullmatch(line):
            name = found[1]
            attributes[name] = found[2].strip()
        elif name and line[:1] in (" ", "\t"):
            attributes[name] += line.strip()
    if job:
        yield begun, job, attributes


def _json_jobs(text: str) -> Iterator[tuple[int, str, dict[str, str]]]:
    text = clean(text)
    try:
        found = json.loads(text, strict=False)
        jobs = found.get("Jobs", {}) if isinstance(found, dict) else {}
        for job, attributes in jobs.items() if isinstance(jobs, dict) else ():
            yield 1, job, _flat(attributes)
    except (ValueError, RecursionError):
        # Functions and quotes in Variable_List are not escaped by some versions: job by job, then.
        yield from _json_pieces(text)


def _json_pieces(text: str) -> Iterator[tuple[int, str, dict[str, str]]]:
    places = list(_JSON_JOB.finditer(text))
    for place, following in zip_longest(places, places[1:]):
        # The environment of the job comes last, and is what is broken.
        piece = text[place.end() : following.start() if following else len(text)].partition('"Variable_List"')[0]
        attributes: dict[str, str] = {}
        for group, members in _JSON_GROUP.findall(piece):
            attributes |= {f"{group}.{name}": value for name, value in _JSON_PAIR.findall(members)}
        attributes |= dict(_JSON_PAIR.findall(_JSON_GROUP.sub("", piece)))
        yield text.count("\n", 0, place.start()) + 1, place[1], attributes


def _flat(attributes: Any, prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in attributes.items() if isinstance(attributes, dict) else ():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = str(value)
    return flat


def read_estimates(output: Output, zone: tzinfo | None = None, now: datetime | None = None) -> Listing[EstimateRow]:
    """Reads `qstat -T`.

    Args:
        now: local time of the server when it was run; without it only whole years can be told.
    """
    rows: list[EstimateRow] = []
    problems: list[Problem] = []
    begun = False
    for number, line in numbered_lines(output.stdout):
        words = line.split()
        if line.strip().startswith("---"):
            begun = True
        elif begun and not _ID.match(words[0].removesuffix("*")) and not line.strip().endswith(":"):
            problems.append(Problem(number, line.strip(), "no job id at its start"))
        elif begun and _ID.match(words[0]):
            row = _estimate_row(words, zone, now)
            if row is None:
                problems.append(Problem(number, line.strip(), "expected 11 columns"))
            else:
                rows.append(row)
    failure = None if output.exit_code == 0 and not output.timed_out else refused_by(output)
    return Listing(tuple(rows), tuple(problems), failure)


def _estimate_row(words: list[str], zone: tzinfo | None, now: datetime | None) -> EstimateRow | None:
    # "We 15" is two words.
    if len(words) == 12:
        words[10:] = [" ".join(words[10:])]
    if len(words) != 11:
        return None
    job, user, queue, name, _session, nodes, tasks, _memory, limit, state, start = words
    estimate, resolution = _start(start, zone, now)
    row = JobRow(
        job_id=job,
        state=STATES.get(state, JobState.UNKNOWN),
        state_word=state,
        id_text=job,
        name=name,
        user=user,
        partition=queue,
        nodes=int(nodes) if nodes.isdecimal() else None,
        processors=int(tasks) if tasks.isdecimal() else None,
        time_limit_s=duration_s(limit, two="hours"),
    )
    return EstimateRow(row, "[" in job, estimate, start, resolution)


_WEEKDAYS = ("Mo", "Tu", "We", "Th", "Fr", "Sa", "Su")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def _start(text: str, zone: tzinfo | None, now: datetime | None) -> tuple[Timestamp | None, str | None]:
    """An "Est Start" and how exact it is: 15:34 today, "We 15" within a week, "Feb" this year, "2031" later."""
    if found := re.fullmatch(r"(\d{1,2}):(\d\d)", text):
        return (None if now is None else timestamp(f"{now:%Y-%m-%d}T{found[1]:0>2}:{found[2]}", zone)), "minute"
    if found := re.fullmatch(r"([A-Z][a-z]) (\d{1,2})", text):
        if now is None or found[1] not in _WEEKDAYS:
            return None, "hour"
        days = (_WEEKDAYS.index(found[1]) - now.weekday()) % 7
        day = datetime.fromordinal(now.toordinal() + days)
        return timestamp(f"{day:%Y-%m-%d}T{found[2]:0>2}:00", zone), "hour"
    if text in _MONTHS:
        return (None if now is None else timestamp(f"{now.year}-{_MONTHS.index(text) + 1:02}-01T00:00", zone)), "month"
    if re.fullmatch(r"\d{4}", text):
        return timestamp(f"{text}-01-01T00:00", zone), "year"
    return None, None
