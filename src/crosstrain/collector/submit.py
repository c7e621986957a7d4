"""`crosstrain submit`: makes the queue match the plan. Load, decide, commit.

A name is never submitted twice, whatever dies in between: the intent is on the disk before the scheduler is asked, the id after
it; an intent without an id is looked up by its name, and while nobody can tell what became of it, nothing more is submitted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from crosstrain.batch.explanations import explained
from crosstrain.batch.job import Job
from crosstrain.batch.readings import Failure, Outcome
from crosstrain.collector import budget
from crosstrain.collector.difference import Allowed, Difference, Refusal, difference
from crosstrain.collector.eligible import most_queued, why_not
from crosstrain.collector.facts import Facts
from crosstrain.collector.journal import Entry, Jobs
from crosstrain.collector.look import Look, said, take_look
from crosstrain.collector.post import Post, shape_of
from crosstrain.collector.tracking import FORGOTTEN_MS, track
from crosstrain.domain.plural import counted
from crosstrain.errors import CrosstrainError
from crosstrain.wire.placement import ItemBody, SitePlanBody


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue as it was found."""

    look: Look
    jobs: Jobs


@dataclass(frozen=True, slots=True)
class Submitted:
    """What `apply` did.

    Attributes:
        jobs: the journal afterwards.
        submitted: jobs that the scheduler took.
        refused: items that it did not take, or may have taken without saying so.
    """

    jobs: Jobs
    submitted: tuple[Entry, ...] = ()
    refused: tuple[Refusal, ...] = ()


@dataclass(slots=True)
class _Progress:
    jobs: Jobs
    submitted: list[Entry] = field(default_factory=list)


def look_at_queue(post: Post) -> Queue:
    """Asks the scheduler now, and brings the journal up to date. The caller holds it. Somebody wants to know, so the budget does
    not forbid it, but the next `collect` waits."""
    now = post.clock.now()
    spent, learnt = post.journal.spent()
    post.journal.keep_spent(budget.looked(budget.settled(spent, now), post.budget, now, post.draw()), learnt)
    facts = Facts(post.journal.facts, post.system, now)
    look = take_look(post.system, facts, post.section, post.user, now, history=False)
    jobs = track(post.system, post.journal.jobs(), look.queue, post.place, now)
    post.journal.keep_jobs(jobs)
    return Queue(look, jobs)


def compare(post: Post, queue: Queue, plan: SitePlanBody) -> Difference:
    """What lies between the queue and the plan of this site."""
    rules = queue.look.rules
    against = {each.shape: why_not(shape_of(each.shape), post.section, rules) for each in post.offered}
    allowed = Allowed(
        against=against,
        max_queued=most_queued(post.section, rules),
        node_hours=post.section.node_hours,
        award_ends=post.award_ends,
        blocked=_blocked(queue),
    )
    return difference(plan.submit, queue.jobs, allowed, post.run, post.site, post.clock.now())


def _blocked(queue: Queue) -> tuple[str, str, str] | None:
    listing = queue.look.queue
    if listing.failure is not None:
        return "queue_unknown", f"the queue cannot be seen: {said(listing.failure)}", "try again later"
    if listing.problems:
        what = (
            f"{counted(len(listing.problems), 'line')} of the queue cannot be read, "
            f"such as {listing.problems[0].text[:80]!r}"
        )
        return "queue_unknown", what, "see what the scheduler prints with `crosstrain parse`"
    lost = [entry.name for entry in queue.jobs.entries if entry.state == "intent"]
    if lost:
        what = f"whether {', '.join(lost)} was submitted is not known"
        fix = f"submit again later: it is looked up each time, and given up {FORGOTTEN_MS // 60_000} min after it was tried at the latest"
        return "outcome_unknown", what, fix
    return None


def job_of(post: Post, item: ItemBody, accumulation: int | None, after: Entry | None) -> Job:
    """The job of a plan item, chained to the one before."""
    section = post.section
    passes = () if accumulation is None else ("--accumulate", str(accumulation))
    return Job(
        name=item.name,
        shape=post.asked(item.shape),
        command=(*section.command, "site", str(post.run_file), "--name", post.site, *passes),
        directory=post.run_file.parent,
        modules=section.modules,
        container=section.container,
        setup=section.setup,
        log=post.logs / f"{item.name}.log",
        after=(after.job_id,) if after is not None and after.job_id else (),
        drain_s=section.drain_s,
    )


def apply(post: Post, queue: Queue, found: Difference, accumulation: int | None) -> Submitted:
    """Submits what is missing, in order, until something is not taken. The caller holds the journal.

    Raises:
        UsageError: a name or a word of `batch` cannot be part of a job.
        EnvironmentFault: the scheduler's program is missing, or a file cannot be written.
    """
    progress = _Progress(queue.jobs)
    last = found.keep[-1] if found.keep else None
    for place, item in enumerate(found.submit):
        job = job_of(post, item, accumulation, last)
        post.system.adapter.script(job)  # refuses what cannot be a job before there is an intent
        failure = _submit(post, progress, item, job, last)
        if failure is not None:
            others = found.submit[place + 1 :]
            return Submitted(progress.jobs, tuple(progress.submitted), _not_taken(item, failure, others))
        last = progress.submitted[-1]
    return Submitted(progress.jobs, tuple(progress.submitted))


def _submit(post: Post, progress: _Progress, item: ItemBody, job: Job, after: Entry | None) -> Failure | None:
    now = post.clock.now()
    intent = Entry(
        name=item.name, shape=item.shape, state="intent", intent_ms=now, after=after.name if after is not None else None
    )
    without, progress.jobs = progress.jobs, progress.jobs.put(intent)
    post.journal.keep_jobs(progress.jobs)
    try:
        answer = post.system.submit(job, post.journal.scripts)
    except CrosstrainError:
        # Nothing was started that could have submitted it.
        post.journal.keep_jobs(without)
        raise
    if answer.outcome is Outcome.SUBMITTED:
        entry = intent.model_copy(
            update={"state": "pending", "job_id": answer.job_ids[-1], "submitted_ms": post.clock.now()}
        )
        progress.jobs = progress.jobs.put(entry)
        progress.submitted.append(entry)
        post.journal.keep_jobs(progress.jobs)
        return None
    failure = answer.failure
    assert failure is not None
    if not (failure.submission_may_exist or answer.outcome is Outcome.UNPARSEABLE):
        progress.jobs = without
        post.journal.keep_jobs(without)
    return failure


def _not_taken(item: ItemBody, failure: Failure, others: tuple[ItemBody, ...]) -> tuple[Refusal, ...]:
    fix = explained(failure).fix
    first = Refusal(item, failure.kind, said(failure), fix)
    rest = (Refusal(each, "chained", f"it comes after {item.name}", fix) for each in others)
    return (first, *rest)
