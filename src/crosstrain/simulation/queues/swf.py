"""Reads job logs in the Standard Workload Format, plain or gzipped.

Eighteen columns a row, -1 for unknown; comment lines begin with a semicolon and hold `Key: value`
(Chapin et al., Benchmarks and Standards for the Evaluation of Parallel Job Schedulers, JSSPP 1999). Read here are columns
1 job number, 2 submit time, 3 wait, 4 run time, 5 and 8 processors allocated and requested, 9 requested time, 12 user.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from crosstrain.errors import UsageError

COLUMNS = 18
LONGEST_WAIT_S = 10 * 86400
"""A job that waited longer was held or depended on another: no scheduler made it wait, so a replay leaves it out."""
LONGEST_LOG_S = 20 * 365 * 86400
"""A row that was submitted later after the first one has a date that cannot be; a replay would step through all the time between."""
OVERRUN_S = 300
"""Schedulers end jobs some seconds after their limit; what ran longer than this over it is cut to it."""
UNKNOWN = -1.0


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job of a log.

    Attributes:
        number: in the log.
        submit_s: seconds since the log's first submission.
        nodes: as the log counts: nodes or cores.
        limit_s: requested time.
        run_s: time it ran, at most `limit_s` + `OVERRUN_S`.
        wait_s: time it waited in reality; None if the log does not tell.
        user: whose it was; -1 if the log does not tell.
    """

    number: int
    submit_s: float
    nodes: int
    limit_s: float
    run_s: float
    wait_s: float | None
    user: int = -1


@dataclass(frozen=True, slots=True)
class Trace:
    """A job log.

    Attributes:
        name: file name without its endings.
        digest: SHA-256 of the file's bytes.
        nodes: size of the machine.
        jobs: in the order of submission.
        left_out: reason -> rows that were left out for it.
    """

    name: str
    digest: str
    nodes: int
    jobs: tuple[TraceJob, ...]
    left_out: dict[str, int]

    @property
    def span_s(self) -> float:
        return self.jobs[-1].submit_s - self.jobs[0].submit_s

    @property
    def load(self) -> float:
        """Node-time that the jobs ran over the machine's, from the first to the last submission."""
        return sum(job.nodes * job.run_s for job in self.jobs) / (self.nodes * self.span_s)


def read_swf(path: Path, nodes: int | None = None) -> Trace:
    """Reads a log.

    Rows whose run time, size or requested time is unknown or zero, that ask for more than the machine has, that waited
    longer than `LONGEST_WAIT_S`, or that came more than `LONGEST_LOG_S` after the first are left out and counted.

    Args:
        nodes: size of the machine, instead of the header's MaxNodes.

    Raises:
        UsageError: no such file, not SWF, a row without its columns, no machine size, or no usable row.
    """
    content = _content(path)
    lines = content.decode("utf-8", errors="replace").splitlines()
    size = nodes or _machine_size(path, lines)
    jobs: list[TraceJob] = []
    left_out: Counter[str] = Counter()
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith(";"):
            continue
        job = _job(_row(path, number, line), size)
        if isinstance(job, str):
            left_out[job] += 1
        else:
            jobs.append(job)
    first_s = min((job.submit_s for job in jobs), default=0.0)
    if late := [job for job in jobs if job.submit_s > first_s + LONGEST_LOG_S]:
        left_out[f"submitted more than {LONGEST_LOG_S // 31_536_000} years after the first"] += len(late)
        jobs = [job for job in jobs if job.submit_s <= first_s + LONGEST_LOG_S]
    if len(jobs) < 2:
        reasons = ", ".join(f"{count} x {reason}" for reason, count in left_out.items()) or "there are no rows"
        raise UsageError(
            f"expected at least two usable jobs in {path}, found {len(jobs)}: {reasons}", "choose another log"
        )
    jobs.sort(key=lambda job: (job.submit_s, job.number))
    name = path.name.removesuffix(".gz").removesuffix(".swf")
    return Trace(name, hashlib.sha256(content).hexdigest(), size, tuple(jobs), dict(left_out))


def _content(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"expected a job log at {path}, but it cannot be read: {error}") from error


def _machine_size(path: Path, lines: Iterable[str]) -> int:
    for key in ("MaxProcs", "MaxNodes"):
        for line in lines:
            if match := re.match(rf";\s*{key}:\s*(\d+)", line):
                return int(match[1])
    raise UsageError(f"{path} has no MaxProcs and no MaxNodes in its header", "give the size of the machine")


def _row(path: Path, number: int, line: str) -> list[float]:
    fields = line.split()
    if len(fields) < COLUMNS:
        raise UsageError(
            f"{path}, line {number}: expected {COLUMNS} columns, found {len(fields)}", "is it an SWF file?"
        )
    try:
        row = [float(field) for field in fields[:COLUMNS]]
        if not all(map(isfinite, row)):
            raise ValueError("not finite")
        return row
    except ValueError as error:
        raise UsageError(
            f"{path}, line {number}: expected numbers, found {line[:60]!r}", "is it an SWF file?"
        ) from error


def _job(row: list[float], size: int) -> TraceJob | str:
    """The job, or why it is left out."""
    number, submit, wait, run, allocated = row[:5]
    nodes = row[7] if row[7] > 0 else allocated
    limit = row[8]
    if submit < 0:
        return "submit time unknown"
    if not run > 0:
        return "run time unknown or zero"
    if not nodes > 0:
        return "size unknown"
    if not limit > 0:
        return "requested time unknown"
    if nodes > size:
        return "larger than the machine"
    if wait > LONGEST_WAIT_S:
        return f"waited more than {LONGEST_WAIT_S // 86400} days"
    told_s = wait if wait >= 0 else None
    return TraceJob(int(number), submit, int(nodes), limit, min(run, limit + OVERRUN_S), told_s, int(row[11]))
