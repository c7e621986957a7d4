"""`crosstrain collect`: looks at a site's scheduler as far as the budget allows, and reports what it saw. Load, decide, commit."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from crosstrain.batch import job as batch
from crosstrain.batch.adapter import NotOffered
from crosstrain.batch.readings import Failure, Probe, Reservation, Retry, Scope
from crosstrain.collector import budget, history
from crosstrain.collector.budget import Budget, Spent
from crosstrain.collector.eligible import most_queued, why_not
from crosstrain.collector.facts import Facts
from crosstrain.collector.journal import Jobs, Learnt
from crosstrain.collector.look import Look, said, take_look
from crosstrain.collector.own_plan import others_hidden, queue_of, reserved, waits_of
from crosstrain.collector.post import Post, shape_of
from crosstrain.collector.tracking import track
from crosstrain.domain.ids import Instant
from crosstrain.domain.plural import counted
from crosstrain.placement.run_times import RunTimes
from crosstrain.placement.shape import Shape
from crosstrain.wire.placement import EstimateBody, OfferedBody, ReportRequest, WaitBody

HISTORY_EVERY_MS = 3_600_000
FRESH_MS = 3_600_000
"""An estimate is repeated in reports for so long, with what is left of its wait."""
MOST_NOTES = 100
LONGEST_NOTE = 500


@dataclass(slots=True)
class _Seen:
    """What one look adds to, step by step."""

    now: Instant
    look: Look
    jobs: Jobs
    spent: Spent
    learnt: Learnt
    offered: tuple[OfferedBody, ...] = ()
    estimates: tuple[EstimateBody, ...] = ()
    waits: tuple[WaitBody, ...] = ()
    discount: float | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Collected:
    """What a call did.

    Attributes:
        report: None if the budget allowed no look.
        reason: why there is none.
        probed: the shape that was probed, if one was.
    """

    report: ReportRequest | None
    reason: str = ""
    probed: str | None = None


def collect(post: Post) -> Collected:
    """Looks, and keeps the report in the outbox. The caller holds the journal and delivers.

    Raises:
        EnvironmentFault: the scheduler's programs are missing, or the site's directory cannot be written.
        IntegrityError: the journal is damaged.
    """
    now, limits = post.clock.now(), post.budget
    spent, learnt = post.journal.spent()
    spent = budget.settled(spent, now)
    if not budget.may_look(spent, now):
        assert spent.look is not None
        left = (spent.look.due_at - now) / 1000
        return Collected(None, f"the scheduler may be asked again in {left:.0f} s")
    spent = budget.looked(spent, limits, now, post.draw())
    post.journal.keep_spent(spent, learnt)
    due = not 0 <= now - learnt.history_at < HISTORY_EVERY_MS
    look = take_look(
        post.system, Facts(post.journal.facts, post.system, now), post.section, post.user, now, history=due
    )
    jobs = track(post.system, post.journal.jobs(), look.queue, post.place, now)
    post.journal.keep_jobs(jobs)
    seen = _Seen(now, look, jobs, spent, learnt, notes=look.notes)
    probed = _probe(post, seen, limits) if look.answered else None
    _offer(post, seen)
    _read_history(post, seen)
    _plan(post, seen)
    seen.spent = budget.look_ended(seen.spent, limits, not look.answered, post.draw())
    report = _report(post, seen)
    # The report first: what it says of waits is marked as said only when it cannot be lost.
    post.outbox.put(report, now)
    post.journal.keep_spent(seen.spent, seen.learnt)
    return Collected(report, probed=probed)


def report_jobs(post: Post, jobs: Jobs, look: Look, notes: Sequence[str] = ()) -> ReportRequest:
    """A report of what `submit` did: jobs and limits, without estimates."""
    now = post.clock.now()
    _, learnt = post.journal.spent()
    seen = _Seen(now, look, jobs, Spent(), learnt, notes=[*look.notes, *notes])
    _offer(post, seen)
    return _report(post, seen)


def _offer(post: Post, seen: _Seen) -> None:
    """The shapes that can be submitted; the others become notes."""
    fit = []
    for each in post.offered:
        shape = shape_of(each.shape)
        reasons = why_not(shape, post.section, seen.look.rules)
        if refused := seen.learnt.refused.get(str(shape)):
            reasons.append(f"refused by the scheduler: {refused}")
        if reasons:
            seen.notes.append(f"{shape} cannot be submitted: {'; '.join(reasons)}")
        else:
            fit.append(each)
    seen.offered = tuple(fit)


def _probe(post: Post, seen: _Seen, limits: Budget) -> str | None:
    """Probes the one shape whose turn it is, those that were refused before too; else a partition's smallest job."""
    fit = [each for each in post.offered if not why_not(shape_of(each.shape), post.section, seen.look.rules)]
    shapes = {str(shape_of(each.shape)): post.asked(each.shape) for each in fit}
    smallest = {f"backlog of {partition}": shape for partition, shape in _smallest(post, seen, fit).items()}
    name = budget.next_probe(seen.spent, list(shapes), seen.now) or budget.next_probe(
        seen.spent, list(smallest), seen.now
    )
    if name is None:
        return None
    try:
        post.system.adapter.probe((shapes | smallest)[name])
    except NotOffered:
        return None
    seen.spent = budget.probed(seen.spent, name, limits, seen.now, post.draw())
    post.journal.keep_spent(seen.spent, seen.learnt)
    probe = post.system.probe((shapes | smallest)[name])
    answered = probe.estimate is not None and probe.estimate.wait_s(seen.now / 1000) is not None
    seen.spent = budget.probe_ended(seen.spent, name, limits, not answered, post.draw())
    if probe.failure is not None and probe.failure.scope is Scope.SITE:
        # A rate limit or an absent controller speaks of the next look too.
        seen.spent = budget.look_ended(seen.spent, limits, True, post.draw())
    if name in shapes:
        _learn_shape(seen, name, probe)
    else:
        _learn_backlog(seen, name.removeprefix("backlog of "), probe)
    return name


def _smallest(post: Post, seen: _Seen, fit: Sequence[OfferedBody]) -> dict[str, batch.Shape]:
    """By partition, a job of a minute on as few nodes as it takes: what it would wait is the backlog alone."""
    least = {each.partition: each.min_nodes or 1 for each in seen.look.rules.partitions or ()}
    return {
        each.shape.partition: post.asked(
            each.shape.model_copy(update={"nodes": least.get(each.shape.partition, 1), "walltime_s": 60})
        )
        for each in fit
    }


def _learn_shape(seen: _Seen, name: str, probe: Probe) -> None:
    refused, starts = dict(seen.learnt.refused), dict(seen.learnt.starts)
    refused.pop(name, None)
    starts.pop(name, None)
    if probe.failure is not None:
        seen.notes.append(f"{name} was not estimated: {said(probe.failure)}")
        if _for_good(probe.failure):
            refused[name] = said(probe.failure)
    elif probe.estimate is not None:
        wait_s = probe.estimate.wait_s(seen.now / 1000)
        if wait_s is None:
            seen.notes.append(f"{name} was given no start that can be: {probe.estimate.start_text!r}")
        else:
            starts[name] = (seen.now, seen.now + round(1000 * wait_s))
    seen.learnt = seen.learnt.model_copy(update={"refused": refused, "starts": starts})


def _learn_backlog(seen: _Seen, partition: str, probe: Probe) -> None:
    wait_s = probe.estimate.wait_s(seen.now / 1000) if probe.estimate else None
    if wait_s is not None:
        known = {**seen.learnt.backlog_s, partition: (seen.now, wait_s)}
        seen.learnt = seen.learnt.model_copy(update={"backlog_s": known})


def _for_good(failure: Failure) -> bool:
    return failure.retry is Retry.NEVER and failure.scope is Scope.SHAPE


def _plan(post: Post, seen: _Seen) -> None:
    """Estimates of all shapes on offer: by the newest probe, and by an own plan of the queue where others are visible."""
    look, planned, found = seen.look, _planned(post, seen), []
    for each in seen.offered:
        shape = shape_of(each.shape)
        asked_at, start = seen.learnt.starts.get(str(shape), (None, 0))
        fresh = asked_at is not None and 0 <= seen.now - asked_at < FRESH_MS
        plan_s = planned.get(shape)
        if plan_s is not None and reserved(shape, plan_s, look.reservations, look.nodes, seen.now / 1000):
            plan_s = None
        if not fresh and plan_s is None:
            continue
        backlog_at, backlog_s = seen.learnt.backlog_s.get(shape.partition, (0, None))
        found.append(
            EstimateBody(
                shape=each.shape,
                age_ms=0 if plan_s is not None or asked_at is None else seen.now - asked_at,
                test_only_s=_left(seen.now, start, plan_s, asked_at) if fresh else None,
                plan_s=plan_s,
                backlog_s=backlog_s if 0 <= seen.now - backlog_at < FRESH_MS else None,
            )
        )
    seen.estimates = tuple(found)


def _planned(post: Post, seen: _Seen) -> dict[Shape, float]:
    """Waits by an own plan of the queue, of the shapes for which there can be one."""
    look = seen.look
    if not look.nodes or not look.answered:
        return {}
    if others_hidden(look.queue.rows, look.nodes):
        seen.notes.append("other people's jobs are hidden: waits are not planned from the queue")
        return {}
    shapes = [shape_of(each.shape) for each in seen.offered]
    run_times, found = RunTimes(history.past_runs(seen.learnt.runs)), dict[Shape, float]()
    for partition in sorted({shape.partition for shape in shapes}):
        queue = queue_of(partition, look.queue.rows, look.nodes, run_times)
        if queue is not None:
            found |= waits_of([shape for shape in shapes if shape.partition == partition], queue, post.draw)
    return found


def _left(now: Instant, start: int, plan_s: float | None, asked_at: int | None) -> float:
    """The wait until a start that was named: from now, or from when it was asked if nothing newer stands beside it."""
    return max(0.0, (start - (now if plan_s is not None or asked_at is None else asked_at)) / 1000)


def _read_history(post: Post, seen: _Seen) -> None:
    rows = seen.look.history
    if rows is None:
        return
    own = {entry.job_id for entry in seen.jobs.entries if entry.job_id}
    shapes = [each.shape for each in seen.offered]
    seen.waits = tuple(history.waits(rows, shapes, own, Instant(seen.learnt.history_until), seen.now))
    seen.discount, note = history.discount(rows)
    seen.notes.append(note)
    if rows and {row.user for row in rows} <= {post.user} and post.user is not None:
        seen.notes.append("accounting shows no jobs but own ones")
    starts = [round(1000 * row.start.epoch) for row in rows if row.start and row.start.epoch]
    until = max([seen.learnt.history_until, *(start for start in starts if start <= seen.now)])
    runs, runs_until = history.runs(rows, seen.learnt.runs, seen.learnt.runs_until, seen.now)
    seen.learnt = seen.learnt.model_copy(
        update={"history_at": seen.now, "history_until": until, "runs": runs, "runs_until": runs_until}
    )


def _report(post: Post, seen: _Seen) -> ReportRequest:
    section, rules = post.section, seen.look.rules
    left = None if section.node_hours is None else section.node_hours - history.charged_h(seen.jobs, pending=False)
    notes = [*seen.notes, *(_maintenance(each, seen.now) for each in seen.look.reservations)]
    notes += [
        f"whether {entry.name} was submitted is not known" for entry in seen.jobs.entries if entry.state == "intent"
    ]
    partitions = {each.shape.partition for each in post.offered}
    return ReportRequest(
        report=secrets.token_hex(16),
        scheduler=section.scheduler,
        offered=seen.offered,
        estimates=seen.estimates,
        jobs=tuple(history.job_bodies(seen.jobs, seen.now)),
        waits=seen.waits,
        discount=seen.discount,
        partition_limits_s={
            each.partition: float(each.max_time_s)
            for each in rules.partitions or ()
            if each.max_time_s and each.partition in partitions
        },
        startup_s=section.startup_s,
        tail_s=section.tail_s,
        max_queued=most_queued(section, rules),
        max_depth=section.depth,
        node_hours_left=None if left is None else max(0.0, left),
        award_ends_ms=None if post.award_ends is None else max(0, post.award_ends - seen.now),
        notes=tuple(note[:LONGEST_NOTE] for note in notes[:MOST_NOTES]),
    )


def _maintenance(reservation: Reservation, now: Instant) -> str:
    def hours(epoch: float | None) -> str:
        return "?" if epoch is None else f"{(epoch - now / 1000) / 3600:.1f} h"

    begin = hours(reservation.start.epoch if reservation.start else None)
    end = hours(reservation.end.epoch if reservation.end else None)
    nodes = reservation.node_count if reservation.node_count is not None else len(reservation.nodes)
    return f"reservation {reservation.name} of {counted(nodes, 'node')}, in {begin} until in {end}"
