"""PBS's error sentences, and whether asking again can help. Pure."""

from __future__ import annotations

import re
from dataclasses import replace

from crosstrain.batch.printed import Output, numbered_lines
from crosstrain.batch.readings import Failure, Outcome, Retry, Scope, Submission

_L, _M, _N = Retry.LATER, Retry.MAYBE, Retry.NEVER
_SENTENCES: tuple[tuple[str, str, Retry, Scope], ...] = (
    ("cannot connect to server", "controller_unreachable", _L, Scope.SITE),
    ("could not connect to", "controller_unreachable", _L, Scope.SITE),
    ("connection refused", "controller_unreachable", _L, Scope.SITE),
    ("communication failure", "controller_unreachable", _L, Scope.SITE),
    ("end of file", "controller_timeout", _L, Scope.SITE),
    ("timed out", "controller_timeout", _L, Scope.SITE),
    ("premature end of message", "controller_timeout", _L, Scope.SITE),
    ("server shutting down", "controller_unreachable", _L, Scope.SITE),
    ("unknown queue", "bad_partition", _N, Scope.SHAPE),
    ("no default queue", "bad_partition", _N, Scope.SHAPE),
    ("queue is not enabled", "partition_unavailable", _L, Scope.SHAPE),
    ("queue is not started", "partition_unavailable", _L, Scope.SHAPE),
    ("job violates queue and/or server resource limits", "policy_limit", _N, Scope.SHAPE),
    ("exceeds queue resource limits", "policy_limit", _N, Scope.SHAPE),
    ("would exceed", "policy_limit", _L, Scope.SITE),
    ("maximum number of jobs already in", "policy_limit", _L, Scope.SITE),
    ("max number of jobs", "policy_limit", _L, Scope.SITE),
    ("unauthorized request", "access_denied", _N, Scope.SITE),
    ("access is denied", "access_denied", _N, Scope.SHAPE),
    ("access from host not allowed", "access_denied", _N, Scope.SITE),
    ("bad uid for job execution", "access_denied", _N, Scope.SITE),
    ("invalid account", "bad_account", _N, Scope.SITE),
    ("unknown resource", "bad_resource", _N, Scope.SHAPE),
    ("illegal attribute or resource value", "bad_resource", _N, Scope.SHAPE),
    ("resource not allowed", "bad_resource", _N, Scope.SHAPE),
    ("invalid resource", "bad_resource", _N, Scope.SHAPE),
    ("unknown job id", "unknown_job", _N, Scope.CALLER),
    ("job has finished", "unknown_job", _N, Scope.CALLER),
    ("script file", "bad_script", _N, Scope.CALLER),
    ("usage: qsub", "bad_option", _N, Scope.CALLER),
    ("illegal -", "bad_option", _N, Scope.CALLER),
    ("invalid option", "bad_option", _N, Scope.CALLER),
    ("invalid reservation", "bad_reservation", _N, Scope.SHAPE),
    ("unknown/illegal dependency", "bad_dependency", _N, Scope.CALLER),
    ("dependency", "bad_dependency", _N, Scope.CALLER),
    ("job rejected by all possible destinations", "policy_limit", _N, Scope.SHAPE),
    ("command not found", "no_program", _N, Scope.SITE),
)  # fmt: skip

KINDS = frozenset(kind for _, kind, _, _ in _SENTENCES)
"""All that a sentence stands for; what they mean: `batch.explanations`."""
_UNREACHABLE = frozenset({"controller_unreachable", "controller_timeout", "timed_out", "no_program"})
_JOB = re.compile(r"(\d+(?:\[\])?(?:\.[A-Za-z][\w.-]*)?)")
_CLIENT = re.compile(r"^\s*(?:qsub|qstat|qdel|pbs_iff)[\w.-]*: *(.*)$", re.IGNORECASE)


def refused_by(output: Output) -> Failure:
    """Why a command failed; the last known sentence counts."""
    if output.timed_out:
        return Failure("timed_out", Retry.LATER, Scope.SITE, submission_may_exist=True)
    lines = [line.strip() for _, line in numbered_lines(output.both)]
    for line in reversed(lines):
        for sentence, kind, retry, scope in _SENTENCES:
            if sentence in line.lower():
                client = _CLIENT.match(line)
                lost = kind == "controller_timeout"
                return Failure(kind, retry, scope, client[1] if client else line, submission_may_exist=lost)
    said = next((found[1] for line in lines if (found := _CLIENT.match(line))), None)
    # A hook of the site refuses in its own words.
    return (
        Failure("site_policy", Retry.NEVER, Scope.SHAPE, said) if said else Failure("unknown", Retry.MAYBE, Scope.SITE)
    )


def read_qsub(output: Output) -> Submission:
    """Reads `qsub`: the last line that is nothing but an id."""
    lines = [line.strip() for _, line in numbered_lines(output.both)]
    jobs = [found[1] for line in lines if (found := _JOB.fullmatch(line))]
    notes = tuple(found[1] for line in lines if (found := _CLIENT.match(line)))
    other = any(not _JOB.fullmatch(line) and not _CLIENT.match(line) for line in lines)
    if jobs and output.exit_code == 0:
        return Submission(Outcome.SUBMITTED, (jobs[-1],), warnings=notes, banner=other)
    if output.exit_code == 0 and not output.timed_out:
        failure = Failure("no_verdict", Retry.NEVER, Scope.CALLER, lines[-1] if lines else None)
        return Submission(Outcome.UNPARSEABLE, failure=failure, banner=other)
    failure = refused_by(output)
    if failure.kind == "unknown":
        return Submission(Outcome.UNPARSEABLE, failure=replace(failure, kind="no_verdict"), banner=other)
    outcome = Outcome.UNREACHABLE if failure.kind in _UNREACHABLE else Outcome.REFUSED
    return Submission(outcome, failure=failure, banner=other)
