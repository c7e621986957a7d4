"""`crosstrain status` and `crosstrain audit`: what a run looks like, and whether its record is true."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crosstrain.cli.amounts import LONGEST_S, between
from crosstrain.domain.plural import counted
from crosstrain.domain.timeouts import JSON_WATCH_S, STATUS_ANSWER_S, WATCH_ANSWER_S, WATCH_EVERY_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from crosstrain.coordinator.audit import Audit
    from crosstrain.wire.messages import StatusReply

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def status(
    run: Annotated[
        Path | None, typer.Argument(metavar="[RUN.toml]", help="The run file; its `site.url` is asked.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Address of the coordinator, instead of `site.url`.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Keep the view up to date until interrupted.")] = False,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", callback=between(0.1, LONGEST_S), help="How often --watch looks.")
    ] = WATCH_EVERY_S,
    as_json: AsJson = False,
) -> None:
    """Show round, sites, leases and what everything waits for. With --watch --json: one document a line."""
    from crosstrain.assembly import coordinator_client, open_run
    from crosstrain.errors import UsageError
    from crosstrain.wire.messages import StatusReply

    if run is None and url is None:
        raise UsageError("status needs to know the coordinator.", "give RUN.toml or --url http://HOST:PORT")
    address = url or open_run(run).config.site.url if run is not None else url
    assert address is not None
    client = coordinator_client(address)

    def look(patience_s: float) -> StatusReply:
        return client.get("status", StatusReply, patience_s)

    if as_json:
        _print_documents(look, every if watch else None)
    else:
        _show(look, every if watch else None)


def _print_documents(look: Callable[[float], StatusReply], every_s: float | None) -> None:
    from crosstrain.clock import pause

    typer.echo(look(STATUS_ANSWER_S).model_dump_json())
    while every_s is not None:
        pause(every_s)
        typer.echo(look(JSON_WATCH_S).model_dump_json())


def _show(look: Callable[[float], StatusReply], every_s: float | None) -> None:
    """Once, or until the run is finished: in place where a person watches, one view after the other elsewhere."""
    from rich.console import Console
    from rich.live import Live

    from crosstrain.clock import pause
    from crosstrain.dashboard.terminal import render

    console, reply = Console(), look(STATUS_ANSWER_S)
    if every_s is not None and not sys.stdout.isatty():
        while not reply.finished:
            console.print(render(reply))
            pause(every_s)
            reply = look(WATCH_ANSWER_S)
    elif every_s is not None:
        with Live(render(reply), console=console, screen=True, auto_refresh=False) as live:
            while not reply.finished:
                pause(every_s)
                reply = look(WATCH_ANSWER_S)
                live.update(render(reply), refresh=True)
    console.print(render(reply))


def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN.toml", help="The run file, on the coordinator's machine.")],
    replay: Annotated[
        bool, typer.Option("--replay", help="Recompute every generation from its contributions.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check a run's record from its database and blobs alone; exit code 1 if anything does not agree."""
    from crosstrain.assembly import open_run, open_stored_run
    from crosstrain.coordinator.audit import audit as check

    database, objects = open_stored_run(open_run(run))
    try:
        found = check(database, objects, replay)
    finally:
        database.close()
    if as_json:
        typer.echo(json.dumps(audit_document(found)))
    else:
        for line in audit_lines(found):
            typer.echo(line)
    if not found.ok:
        raise typer.Exit(1)


def audit_document(found: Audit) -> dict[str, object]:
    """The JSON form of an audit."""
    return {
        "audit": {"ok": found.ok, "problems": list(found.problems)},
        "blocks": {"total": found.blocks, **{state.value: blocks for state, blocks in found.counts.items()}},
        "generations": found.generations,
        "contributions": found.contributions,
        "events": found.events,
        "replayed": found.replayed,
        "not_replayable": found.not_replayable,
        "removed": found.removed,
    }


def audit_lines(found: Audit) -> list[str]:
    """The text form of an audit."""
    counts = ", ".join(f"{blocks} {state.value}" for state, blocks in found.counts.items())
    replayed = f", {found.replayed} recomputed" if found.replayed else ""
    removed = f", {counted(found.removed, 'blob')} removed by retention" if found.removed else ""
    head = (
        f"{counted(found.generations, 'generation')}{replayed}, "
        f"{counted(found.contributions, 'contribution')}, {counted(found.events, 'event')}{removed}; "
        f"blocks: {counts}, {found.blocks} in all"
    )
    verdict = "audit clean: every block is in one state, and every merged block was trained exactly once"
    problems = [f"problem: {problem}" for problem in found.problems]
    lost = counted(found.not_replayable, "generation")
    notes = [f"{lost} could not be recomputed because of retention"] if found.not_replayable else []
    return [head, *notes, *(problems or [verdict])]
