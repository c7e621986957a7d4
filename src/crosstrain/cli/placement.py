"""`crosstrain plan` and `crosstrain waits`: what the planner would do, and what it knows of queues."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crosstrain.cli.amounts import LONGEST_S, between
from crosstrain.cli.inspect import AsJson
from crosstrain.domain.timeouts import COMMAND_ANSWER_S, PLAN_EVERY_S, WATCH_ANSWER_S

if TYPE_CHECKING:
    from crosstrain.wire.client import ControlClient
    from crosstrain.wire.placement import PlanReply

RunFile = Annotated[Path | None, typer.Argument(metavar="[RUN.toml]", help="The run file; its `site.url` is asked.")]
Url = Annotated[str | None, typer.Option(help="Address of the coordinator, instead of `site.url`.")]


def plan(
    run: RunFile = None,
    url: Url = None,
    watch: Annotated[bool, typer.Option("--watch", help="Plan again and again until interrupted.")] = False,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", callback=between(1.0, LONGEST_S), help="How often --watch plans.")
    ] = PLAN_EVERY_S,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a timeline: .png, .svg or .pdf; needs the extra `plot`.")
    ] = None,
    why: Annotated[bool, typer.Option("--why", help="Show all reasons, and what was not chosen.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show which jobs to submit where, when the run would be done, and why. With --watch --json: one document a line."""
    from rich.console import Console

    from crosstrain.clock import pause
    from crosstrain.dashboard.placement import plan_view
    from crosstrain.dashboard.timeline import draw
    from crosstrain.wire.placement import PlanReply

    client, console = _client("plan", run, url), Console()

    def show(reply: PlanReply) -> None:
        if picture is not None:
            draw(reply, picture)
        if as_json:
            typer.echo(reply.model_dump_json())
        else:
            console.print(plan_view(reply, why))

    show(client.get("placement/plan", PlanReply, COMMAND_ANSWER_S))
    while watch:
        pause(every)
        if not as_json and sys.stdout.isatty():
            console.clear()
        show(client.get("placement/plan", PlanReply, WATCH_ANSWER_S))


def waits(
    run: RunFile = None,
    url: Url = None,
    why: Annotated[bool, typer.Option("--why", help="Show what each forecast was made from.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the forecast wait of every shape at every site, as bands, with the record of past error."""
    from rich.console import Console

    from crosstrain.dashboard.waits import waits_view
    from crosstrain.wire.placement import WaitsReply

    reply = _client("waits", run, url).get("placement/waits", WaitsReply, COMMAND_ANSWER_S)
    if as_json:
        typer.echo(reply.model_dump_json())
    else:
        Console().print(waits_view(reply, why))


def _client(command: str, run: Path | None, url: str | None) -> ControlClient:
    from crosstrain.assembly import coordinator_client, open_run
    from crosstrain.errors import UsageError

    if run is None and url is None:
        raise UsageError(f"{command} needs to know the coordinator.", "give RUN.toml or --url http://HOST:PORT")
    return coordinator_client(url or (open_run(run).config.site.url if run is not None else ""))
