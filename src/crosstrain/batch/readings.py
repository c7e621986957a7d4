"""What the output of a batch system said, as values. Pure: no program runs here, and nothing is guessed.

What could not be read stays None or UNKNOWN. A failed command is a `Failure`, whose `retry` says whether asking again can
help: later, never, or nobody can tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from crosstrain.batch.times import Timestamp

HORIZON_S = 60 * 86400
"""Estimates beyond this are not believed: Slurm sums them in 32 bits and can print any date."""

_HELD = ("held", "dependency", "begintime", "deadline")


class Outcome(StrEnum):
    """What became of a submission or a probe."""

    ESTIMATE = "estimate"
    SUBMITTED = "submitted"
    REFUSED = "refused"
    """The scheduler said no."""
    UNREACHABLE = "unreachable"
    """Nobody decided: the scheduler was away, overloaded or not configured."""
    UNPARSEABLE = "unparseable"
    """There was no verdict in the output; it means neither yes nor no."""


class Retry(StrEnum):
    LATER = "later"
    """The same request can succeed later without a change."""
    MAYBE = "maybe"
    """The text comes for passing and for permanent causes."""
    NEVER = "never"
    """Not without a change of the request or of the site's rules."""


class Scope(StrEnum):
    """What a failure speaks about."""

    SHAPE = "shape"
    SITE = "site"
    CALLER = "caller"
    """Our own command, script or environment."""


class JobState(StrEnum):
    """A job's state in Slurm's words, whatever the batch system calls it."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"
    """Ended by its walltime: the usual end of a site's job, not a failure."""
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    REQUEUED = "REQUEUED"
    """An incarnation that ended; the job is pending again or has a later row."""
    UNKNOWN = "UNKNOWN"
    """Not listed, or a word never seen. It is not "finished"."""

    @property
    def over(self) -> bool:
        """The job will not run again under this id."""
        return self not in _NOT_OVER


_NOT_OVER = {JobState.PENDING, JobState.RUNNING, JobState.SUSPENDED, JobState.REQUEUED, JobState.UNKNOWN}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a command brought nothing.

    Attributes:
        kind: machine-readable, for example ``time_limit``; `batch.explanations` has them all.
        detail: the site's own words beside the standard sentence, if any.
        submission_may_exist: the request may have arrived all the same; look for the job before submitting again.
    """

    kind: str
    retry: Retry
    scope: Scope
    detail: str | None = None
    submission_may_exist: bool = False


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """A start that a scheduler named for a job that was not submitted.

    Attributes:
        start: None where the time cannot be read; `start_text` has it as printed.
        node_expr: the node list as printed, `nodes` its names.
        placeholder_job_id: an id that the probe used up; no job has it.
        preempts: jobs that would be preempted.
    """

    start: Timestamp | None
    start_text: str
    node_expr: str
    nodes: tuple[str, ...]
    processors: int
    partition: str | None
    cluster: str | None
    placeholder_job_id: int
    preempts: tuple[str, ...] = ()

    def wait_s(self, now: float) -> float | None:
        """Seconds from `now` (epoch) to the start, never negative; None if unknown or beyond belief."""
        if self.start is None or self.start.epoch is None:
            return None
        wait = max(0.0, self.start.epoch - now)
        return wait if wait <= HORIZON_S else None


@dataclass(frozen=True, slots=True)
class Probe:
    """Reading of a dry run: an estimate or a failure. Warnings are the lines that the scheduler's client marked as its own."""

    outcome: Outcome
    estimate: StartEstimate | None = None
    failure: Failure | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Balance:
    """Node or core hours of the account, where a site prints them at submission."""

    allocation_hours: float
    balance_hours: float


@dataclass(frozen=True, slots=True)
class Submission:
    """Reading of a submission.

    Attributes:
        job_ids: usually one; several where one log holds several submissions.
        banner: the site printed text of its own.
    """

    outcome: Outcome
    job_ids: tuple[str, ...] = ()
    cluster: str | None = None
    failure: Failure | None = None
    warnings: tuple[str, ...] = ()
    banner: bool = False
    balance: Balance | None = None


@dataclass(frozen=True, slots=True)
class ArrayTasks:
    """Tasks of a pending array that share one row."""

    indices: tuple[int, ...]
    ranges: int
    throttle: int | None = None


@dataclass(frozen=True, slots=True)
class JobRow:
    """One row about a job. What the output does not hold is None.

    Attributes:
        job_id: without component and array set.
        component: offset in a heterogeneous job.
        state_word: as printed, without "by UID".
        elapsed_s: run time so far or in all; `waited_s` the time in the queue as the scheduler counts it.
        time_limit_s: seconds; None also for no limit, which `unlimited` tells apart.
        eligible: since when the job could have started but for the queue.
        steps: job steps listed beside the row.
    """

    job_id: str
    state: JobState
    state_word: str
    id_text: str = ""
    component: int | None = None
    array: ArrayTasks | None = None
    name: str | None = None
    user: str | None = None
    partition: str | None = None
    cluster: str | None = None
    nodes: int | None = None
    processors: int | None = None
    submit: Timestamp | None = None
    eligible: Timestamp | None = None
    start: Timestamp | None = None
    end: Timestamp | None = None
    time_limit_s: int | None = None
    unlimited: bool = False
    elapsed_s: int | None = None
    waited_s: int | None = None
    priority: float | None = None
    reason: str | None = None
    sched_nodes: tuple[str, ...] = ()
    steps: int = 0

    @property
    def wait_s(self) -> float | None:
        """Seconds from submission to start, once it started."""
        return None if self.start is None or self.submit is None else self.start.after(self.submit)

    @property
    def in_queue(self) -> bool:
        """Whether the job competes: held and dependent jobs stand in the list without being ahead of anybody."""
        reason = (self.reason or "").lower()
        return self.priority != 0 and not any(word in reason for word in _HELD)

    @property
    def start_is_plan(self) -> bool:
        """Whether the start of a pending job is the scheduler's plan, and not the begin that its owner asked for."""
        return self.start is not None and (self.reason or "").lower() != "begintime"

    @property
    def usage_ratio(self) -> float | None:
        """Run time over requested time, for jobs that ran and ended."""
        if not self.state.over or self.start is None or not self.time_limit_s or not self.elapsed_s:
            return None
        return self.elapsed_s / self.time_limit_s


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """Nodes of a partition in one state, or of the partition in all states.

    Attributes:
        state: base word in lower case, such as ``idle`` or ``mixed``; None where the row counts all states.
        flags: what its suffixes mean, such as ``planned`` or ``not_responding``.
        counts: allocated, idle, other, all; None where the row has one state.
    """

    partition: str
    default: bool = False
    up: bool | None = None
    availability: str | None = None
    time_limit_s: int | None = None
    unlimited: bool = False
    nodes: int | None = None
    state: str | None = None
    flags: frozenset[str] = frozenset()
    counts: tuple[int, int, int, int] | None = None
    node_list: str | None = None
    gpu_type: str | None = None
    gpus: int | None = None
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node: GPUs, those in use, state."""

    node: str
    state: str | None = None
    flags: frozenset[str] = frozenset()
    gpu_type: str | None = None
    gpus: int | None = None
    gpus_used: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionLimits:
    """What a partition allows; None is no limit. Walltimes in seconds, `nodes` those that exist."""

    partition: str
    state: str
    nodes: int | None
    max_nodes: int | None
    min_nodes: int | None
    max_time_s: int | None
    default_time_s: int | None
    default: bool = False
    qos: str | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes set aside, for example for maintenance."""

    name: str
    start: Timestamp | None
    end: Timestamp | None
    nodes: tuple[str, ...]
    node_count: int | None
    flags: frozenset[str]
    state: str | None = None
    partition: str | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a QoS or of an association; None is no limit. Probes do not test the running ones.

    Attributes:
        name: QoS, or ``account/partition`` of an association.
        max_nodes: of one job; `group_nodes` of all jobs together, `user_nodes` of all of one user.
        max_jobs: running at once for one user; `max_submit` in the queue at once.
    """

    name: str
    max_wall_s: int | None = None
    max_nodes: int | None = None
    user_nodes: int | None = None
    group_nodes: int | None = None
    max_jobs: int | None = None
    max_submit: int | None = None
    qos: tuple[str, ...] = ()
    flags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Problem:
    """A line that could not be read, and why."""

    line: int
    text: str
    why: str


Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Listing(Generic[Row]):
    """Rows of one output. A failure means that the command brought no list; no rows alone mean an empty list."""

    rows: tuple[Row, ...] = ()
    problems: tuple[Problem, ...] = ()
    failure: Failure | None = None
