"""`sbatch` and `sbatch --test-only`: commands and their verdicts. Pure.

The verdict decides together with the exit code, never the word "error" in a line: spank plugins and ignored settings
print it and all is well. Everything is looked for line by line, the last hit wins, because sites print banners before it.
A dry run writes to stderr alone; a submission writes its id to stdout.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo

from crosstrain.batch.nodelist import expand
from crosstrain.batch.printed import Output, numbered_lines
from crosstrain.batch.readings import Balance, Failure, Outcome, Probe, Retry, Scope, StartEstimate, Submission
from crosstrain.batch.slurm.refusals import UNREACHABLE, failure_in, is_reason, reason_in, with_detail
from crosstrain.batch.times import timestamp

_STAMP = r"(?:\[?\d{4}-\d\d-\d\d\S*\s+(?:\d\d:\S+\s+)?(?:\[?[a-z]+\]?:?\s+)?)?"
"""Date, time and level of a log that a wrapper keeps."""
_CLIENT = re.compile(
    rf"^\s*{_STAMP}(?:\S*/)?(?:sbatch|srun|salloc)[\w.-]*: ?(?:(error|fatal|warning|info): )?(.*)$", re.IGNORECASE
)
_BEGIN = re.compile(r"job \d+ to start at ", re.IGNORECASE)
_START = re.compile(
    r"job (\d+) to start at (.+?)(?: on cluster (\S+))?(?: a)? using (\d+) processors? on (?:nodes? )?(\S+)"
    r"(?: in partition (\S+))?\s*$",
    re.IGNORECASE,
)
_PREEMPTS = re.compile(r"^\W*preempts: *(.*)$", re.IGNORECASE)
_SUBMITTED = re.compile(
    r"(?:submitted batch job|granted job allocation|pending job allocation) (\d+)(?: on cluster (\S+))?"
    r"|(?<!\S)job (\d+) (?:queued and waiting|has been allocated)",
    re.IGNORECASE,
)
_PARSABLE = re.compile(r"(\d+)(?:;([\w.-]+))?")
_REFUSED = re.compile(
    r"(?:allocation failure|batch job submission failed|unable to allocate resources|job submit/allocate failed)"
    r": *(.*)$",
    re.IGNORECASE,
)
_BALANCE = re.compile(r"allocation: *([\d,.]+) hours.*?balance: *(-?[\d,.]+) hours", re.IGNORECASE)
_NAMED = re.compile(r"invalid partition specified: *(.+)$", re.IGNORECASE)
_OPTION = re.compile(r"defined options|end of defined options|-{5,}.*|[\w-]+ {2,}: .*|[\w-]{20,}: .*", re.IGNORECASE)
_HARMLESS = re.compile(
    r"spank|plugin file not found|slurm_time_format|ignoring|ignored|sleeping and retrying|retrying", re.IGNORECASE
)
_SAYS_SOMETHING = re.compile(r"\w")
"""Sites frame their refusals with rules of dashes and stars."""
_TIMEOUT_CODES = (124, 137)
"""Of timeout(1), which wrappers put around the clients."""


@dataclass(slots=True)
class _Lines:
    """The lines of one output, sorted by what they are."""

    starts: list[re.Match[str]] = field(default_factory=list)
    preempts: tuple[str, ...] = ()
    ids: list[tuple[str, str | None]] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    balance: Balance | None = None


def read_probe(output: Output, zone: tzinfo | None = None, now: datetime | None = None) -> Probe:
    """Reads `sbatch --test-only`.

    Args:
        zone: of times without one; None leaves them without an epoch.
        now: the printer's local time, for SLURM_TIME_FORMAT=relative.
    """
    lines = _sort(output)
    if lines.refusals or output.exit_code != 0 or output.timed_out or not lines.starts:
        outcome, failure = _failed(lines, output)
        # A probe submits nothing.
        failure = replace(failure, submission_may_exist=False)
        return Probe(outcome, failure=failure, warnings=_notes(lines, outcome))
    found = lines.starts[-1]
    estimate = StartEstimate(
        start=timestamp(found[2], zone, now),
        start_text=found[2].strip(),
        node_expr=found[5],
        nodes=expand(found[5]),
        processors=int(found[4]),
        partition=found[6],
        cluster=found[3],
        placeholder_job_id=int(found[1]),
        preempts=lines.preempts,
    )
    return Probe(Outcome.ESTIMATE, estimate, warnings=(*lines.errors, *lines.notes))


def read_submission(output: Output) -> Submission:
    """Reads `sbatch`, with or without --parsable. An id that was printed counts whatever the exit code says: a job has it,
    and `--wait` passes on the code of the job.
    """
    lines = _sort(output)
    banner = bool(lines.foreign)
    if not lines.ids:
        outcome, failure = _failed(lines, output)
        return Submission(outcome, failure=failure, warnings=_notes(lines, outcome), banner=banner)
    return Submission(
        Outcome.SUBMITTED,
        tuple(job for job, _ in lines.ids),
        lines.ids[-1][1],
        warnings=(*lines.errors, *lines.notes),
        banner=banner,
        balance=lines.balance,
    )


def _sort(output: Output) -> _Lines:
    lines = _Lines()
    for _, line in numbered_lines(output.both):
        client = _CLIENT.match(line)
        text = (client[2] if client else line).strip()
        if not _SAYS_SOMETHING.search(text):
            continue
        if found := _BALANCE.search(text):
            lines.balance = Balance(*(float(part.replace(",", "").rstrip(".")) for part in found.groups()))
        if found := _start(text):
            lines.starts.append(found)
        elif found := _PREEMPTS.match(text):
            lines.preempts = tuple(part.strip() for part in found[1].split(",") if part.strip())
        elif found := _SUBMITTED.search(text):
            _add_id(lines, found[1] or found[3], found[2])
        elif found := _REFUSED.search(text):
            lines.refusals.append(found[1].strip())
        elif client is None:
            _foreign(lines, text, output.exit_code)
        elif (client[1] or "").lower() in ("error", "fatal"):
            lines.errors.append(text)
        elif not _OPTION.fullmatch(text):
            lines.notes.append(text)
    return lines


def _start(text: str) -> re.Match[str] | None:
    # The last beginning of a verdict: one line is read in one pass, whatever stands in it.
    begins = [found.start() for found in _BEGIN.finditer(text)]
    return _START.match(text, begins[-1]) if begins else None


def _add_id(lines: _Lines, job: str, cluster: str | None) -> None:
    # salloc names one job several times.
    if (job, cluster) not in lines.ids:
        lines.ids.append((job, cluster))


def _foreign(lines: _Lines, text: str, exit_code: int) -> None:
    if exit_code == 0 and (found := _PARSABLE.fullmatch(text)):
        _add_id(lines, found[1], found[2])
    elif exit_code != 0 and failure_in(text) is not None:
        # Wrappers drop the client's name.
        lines.errors.append(text)
    else:
        lines.foreign.append(text)


def _notes(lines: _Lines, outcome: Outcome) -> tuple[str, ...]:
    """Warnings beside a failure: error lines are its causes then, unless they are known to be harmless."""
    errors = [text for text in lines.errors if _HARMLESS.search(text)] if outcome is not Outcome.UNREACHABLE else []
    return (*errors, *lines.notes)


def _failed(lines: _Lines, output: Output) -> tuple[Outcome, Failure]:
    failure = _verdict(lines)
    if failure is None and (output.timed_out or (output.exit_code in _TIMEOUT_CODES and not lines.starts)):
        failure = Failure("timed_out", Retry.LATER, Scope.SITE, submission_may_exist=True)
    if failure is None:
        # Exit code 0 and silence: accepted, but not "now". Otherwise nobody can tell.
        retry = Retry.NEVER if output.exit_code == 0 else Retry.MAYBE
        return Outcome.UNPARSEABLE, Failure("no_verdict", retry, Scope.CALLER, _last(lines.foreign))
    return (Outcome.UNREACHABLE if failure.kind in UNREACHABLE else Outcome.REFUSED), failure


def _verdict(lines: _Lines) -> Failure | None:
    causes = [text for text in lines.errors if not _HARMLESS.search(text)]
    if lines.refusals:
        verdict = lines.refusals[-1]
        failure = failure_in(verdict) or Failure("other", Retry.MAYBE, Scope.SHAPE, verdict or None)
        return with_detail(failure, _detail(causes) or reason_in(verdict))
    known = [(text, found) for text in causes if (found := failure_in(text))]
    if known:
        text, failure = known[-1]
        return with_detail(failure, _detail(causes[: causes.index(text)]))
    reasons = [text for text in causes if is_reason(text)]
    if reasons:
        return with_detail(Failure("policy_limit", Retry.MAYBE, Scope.SHAPE), reasons[-1])
    # A site's plugin says no in its own words.
    return Failure("site_policy", Retry.NEVER, Scope.SHAPE, causes[0]) if causes else None


def _detail(causes: Sequence[str]) -> str | None:
    """The site's words among the lines before the verdict: a limit's name before anything else."""
    chosen = next((text for text in causes if is_reason(text)), causes[0] if causes else None)
    if chosen is None:
        return None
    named = _NAMED.search(chosen)
    return named[1].strip() if named else chosen.strip()


def _last(texts: Sequence[str]) -> str | None:
    return texts[-1] if texts else None


def refused_by(output: Output) -> Failure:
    """Why a command other than a submission failed."""
    lines = _sort(replace(output, exit_code=output.exit_code or 1))
    if output.timed_out:
        return Failure("timed_out", Retry.LATER, Scope.SITE)
    texts = [*lines.errors, *lines.foreign, *lines.notes]
    for text in (*lines.refusals, *reversed(texts)):
        if failure := failure_in(text):
            return replace(failure, detail=text, submission_may_exist=False)
    return Failure("unknown", Retry.MAYBE, Scope.SITE, _last(texts))
