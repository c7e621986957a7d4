"""`crosstrain collect` and `crosstrain submit`: one site's batch system, asked and filled by short commands."""

from __future__ import annotations

import json
import logging
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosstrain.cli.inspect import AsJson
from crosstrain.domain.plural import counted
from crosstrain.domain.timeouts import COMMAND_ANSWER_S

if TYPE_CHECKING:
    from crosstrain.collector.difference import Difference, Refusal
    from crosstrain.collector.outbox import Delivery
    from crosstrain.collector.post import Post
    from crosstrain.collector.submit import Submitted
    from crosstrain.wire.client import ControlClient
    from crosstrain.wire.placement import SitePlanBody

log = logging.getLogger(__name__)

RunFile = Annotated[
    Path, typer.Argument(metavar="RUN.toml", help="The run file; its section `sites.NAME.batch` is used.")
]
Name = Annotated[str, typer.Option(help="The site's name in the run.")]
Url = Annotated[str | None, typer.Option(help="Address of the coordinator, instead of `site.url`.")]


def collect(
    run: RunFile,
    name: Name,
    url: Url = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Keep the report; a later call from where there is a network delivers it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Ask a site's scheduler what it can say of waits, as far as the budget allows, and report it to the coordinator. Short, for
    cron or by hand. Exit code 0 if it reported or kept a report, or had nothing to ask yet."""
    from crosstrain.collector.collect import collect as look

    post, client = _open(run, name, url)
    with closing(client), post.journal.held():
        found = look(post)
        delivery = None if offline else post.outbox.deliver(client, name, post.clock.now())
        waiting = len(post.outbox)
    notes = found.report.notes if found.report is not None else ()
    for note in notes:
        log.info("%s: %s", name, note)
    _tell(delivery, waiting)
    if as_json:
        document = {
            "site": name,
            "reason": found.reason,
            "probed": found.probed,
            "report": None if found.report is None else found.report.model_dump(mode="json"),
            "delivered": 0 if delivery is None else delivery.delivered,
            "waiting": waiting,
            "refused": [] if delivery is None else list(delivery.refused),
        }
        typer.echo(json.dumps(document))
    elif found.report is None:
        typer.echo(f"{name}: nothing was asked: {found.reason}")
    else:
        report = found.report
        typer.echo(
            f"{name}: {counted(len(report.offered), 'shape')} on offer, "
            f"{counted(len(report.estimates), 'estimate')}, {counted(len(report.jobs), 'own job')}, "
            f"{counted(len(report.waits), 'wait')}; probed {found.probed or 'nothing'}"
        )


def submit(
    run: RunFile,
    name: Name,
    url: Url = None,
    apply: Annotated[bool, typer.Option("--apply", help="Submit what is missing.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show; the default.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what lies between a site's queue and the coordinator's plan; with --apply, submit what is missing. Nothing is ever
    submitted twice or cancelled. Exit code 1 if an item of the plan cannot be submitted."""
    from crosstrain.collector.collect import report_jobs
    from crosstrain.collector.submit import Submitted, compare, look_at_queue
    from crosstrain.collector.submit import apply as carry_out
    from crosstrain.errors import UsageError

    if apply and dry_run:
        raise UsageError("--apply and --dry-run contradict each other.", "give one of them, or neither to look")
    post, client = _open(run, name, url)
    with closing(client), post.journal.held():
        queue = look_at_queue(post)
        # The plan is made of what the queue holds now.
        post.outbox.put(report_jobs(post, queue.jobs, queue.look), post.clock.now())
        delivery = post.outbox.deliver(client, name, post.clock.now())
        plan = _plan(client, name, delivery)
        found = compare(post, queue, plan)
        done = Submitted(queue.jobs)
        try:
            if apply:
                done = carry_out(post, queue, found, plan.accumulation)
        finally:
            if apply and found.submit:
                jobs = post.journal.jobs()
                post.outbox.put(report_jobs(post, jobs, queue.look), post.clock.now())
                delivery = post.outbox.deliver(client, name, post.clock.now())
        waiting = len(post.outbox)
    for note in queue.look.notes:
        log.info("%s: %s", name, note)
    _tell(delivery, waiting)
    refused = (*found.refused, *done.refused)
    if as_json:
        typer.echo(json.dumps(_document(name, apply, plan, found, done) | {"waiting": waiting}))
    else:
        _show(name, apply, plan, found, done)
    if refused:
        raise typer.Exit(1)


def _open(run: Path, name: str, url: str | None) -> tuple[Post, ControlClient]:
    from crosstrain.assembly import coordinator_client, open_run
    from crosstrain.collector.opening import open_post

    files = open_run(run)
    site = files.config.site_named(name)
    post = open_post(files.config, files.path, files.resolve(site.dir), name)
    return post, coordinator_client(url or site.url)


def _plan(client: ControlClient, name: str, delivery: Delivery) -> SitePlanBody:
    """This site's part of the plan."""
    from crosstrain.errors import Refused, Unreachable
    from crosstrain.wire.placement import PlanReply

    if delivery.trouble:
        raise Unreachable(
            f"The coordinator does not have the queue as it is: {delivery.trouble}",
            "submit again later; jobs that are queued start all the same",
        )
    reply = client.get("placement/plan", PlanReply, COMMAND_ANSWER_S)
    mine = next((site for site in reply.sites if site.site == name), None)
    if mine is None:
        raise Refused(
            f"The coordinator's plan has no site {name}: it did not take the report of its queue.",
            "see the lines above; is the coordinator of the same version?",
            kind="unknown-site",
        )
    return mine


def _tell(delivery: Delivery | None, waiting: int) -> None:
    if delivery is not None:
        for reason in delivery.refused:
            log.error("the coordinator does not take a report, it is set aside: %s", reason)
        if delivery.trouble:
            log.warning("not delivered yet: %s; %s", counted(waiting, "report"), delivery.trouble)
    elif waiting:
        log.info("not delivered yet: %s", counted(waiting, "report"))


def _document(name: str, apply: bool, plan: SitePlanBody, found: Difference, done: Submitted) -> dict[str, Any]:
    return {
        "site": name,
        "applied": apply,
        "role": plan.role,
        "reason": plan.reason,
        "keep": [{"name": job.name, "state": job.state, "job_id": job.job_id} for job in found.keep],
        "submit": [{"name": item.name, "shape": item.shape.model_dump()} for item in found.submit],
        "done": [{"name": job.name, "state": job.state, "job_id": job.job_id} for job in found.done],
        "submitted": [{"name": job.name, "job_id": job.job_id} for job in done.submitted],
        "refused": [_refusal(each) for each in (*found.refused, *done.refused)],
    }


def _refusal(each: Refusal) -> dict[str, str]:
    return {"name": each.item.name, "kind": each.kind, "reason": each.reason, "fix": each.fix}


def _show(name: str, apply: bool, plan: SitePlanBody, found: Difference, done: Submitted) -> None:
    from crosstrain.collector.post import shape_of

    typer.echo(f"{name}: {plan.role}, {plan.reason}")
    for job in found.keep:
        typer.echo(f"  keep   {job.name}  {job.state}, job {job.job_id}, {shape_of(job.shape)}")
    for job in found.done:
        typer.echo(f"  done   {job.name}  {job.state}, job {job.job_id}")
    ids = {job.name: job.job_id for job in done.submitted}
    not_taken = {each.item.name for each in done.refused}
    for item in found.submit:
        if item.name not in not_taken:
            became = f"job {ids[item.name]}" if item.name in ids else "would be submitted"
            typer.echo(f"  submit {item.name}  {became}, {shape_of(item.shape)}")
    for each in (*found.refused, *done.refused):
        typer.echo(f"  refuse {each.item.name}  {each.kind}: {each.reason}\n         {each.fix}")
    if not (found.keep or found.submit or found.refused):
        typer.echo("  nothing to do")
    if found.submit and not apply:
        typer.echo("Nothing was done; --apply submits.")
