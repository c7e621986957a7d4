"""`crosstrain simulate`: the whole system on a virtual clock."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from crosstrain.cli import campaign
from crosstrain.domain.plural import counted

if TYPE_CHECKING:
    from crosstrain.simulation.fault_search import Findings

app = typer.Typer(help="Run the system on a virtual clock, from a seed.", no_args_is_help=True)

app.command("campaign")(campaign.campaign)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command()
def faults(
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    hours: Annotated[float, typer.Option(min=0.01, help="Virtual hours in which faults happen.")] = 0.25,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; default: one per core.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Search for a schedule of faults that breaks a guarantee; exit code 1 if one is found."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from crosstrain.simulation.fault_search import search

    console = Console(stderr=True)
    columns = (
        TextColumn("seeds"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, disable=not sys.stderr.isatty(), transient=True) as progress:
        task = progress.add_task("", total=seeds)

        def report(done: int, broken: int) -> None:
            progress.update(task, completed=done, description=f"{counted(broken, 'violation')}" if broken else "")

        findings = search(seed, seeds, hours, min(seeds, workers or os.cpu_count() or 1), report)
    typer.echo(json.dumps(_document(findings)) if as_json else _text(findings))
    if findings.stories:
        raise typer.Exit(1)


@app.command("darl-table3")
def darl_table3(
    seed: Annotated[int, typer.Option(min=0, help="Of the order of blocks, the network and the departures.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Play the setting of arXiv 2610.03457, Table 3: three unequal sites, four departures, 23.8 hours."""
    from crosstrain.cli import table3
    from crosstrain.simulation.table3 import Setting, reproduce

    found = reproduce(seed, Setting())
    if as_json:
        typer.echo(json.dumps(table3.document(found)))
    else:
        table3.show(found)
    if found.ledger.problems or found.audit_problems:
        raise typer.Exit(1)


@app.command()
def table4(as_json: AsJson = False) -> None:
    """Reproduce Table 4 of arXiv 2610.03457: two sites, three scenarios of waits, in the fluid model."""
    from crosstrain.cli import table4 as page
    from crosstrain.simulation.table4 import reproduce

    found = reproduce()
    if as_json:
        typer.echo(json.dumps(page.document(found)))
    else:
        page.show(found)


def _document(findings: Findings) -> dict[str, object]:
    return {
        "seeds": findings.seeds,
        "events": findings.events,
        "faults": findings.faults,
        "generations": findings.generations,
        "violations": [
            {
                "seed": story.seed,
                "guarantee": story.violation.guarantee,
                "story": list(story.lines),
                "command": story.command,
            }
            for story in findings.stories
        ],
    }


def _text(findings: Findings) -> str:
    head = (
        f"{counted(findings.seeds, 'seed')}, {counted(findings.events, 'event')}, {counted(findings.faults, 'fault')}, "
        f"{counted(findings.generations, 'generation')}: "
    )
    if not findings.stories:
        return head + "every guarantee held after every event"
    stories = ["\n  ".join([f"seed {story.seed}:", *story.lines, story.command]) for story in findings.stories]
    return "\n".join([head + f"{counted(len(findings.stories), 'violation')}", *stories])
