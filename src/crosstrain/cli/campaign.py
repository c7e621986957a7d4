"""`crosstrain simulate campaign`: strategies of placement compared on made-up or replayed queues."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosstrain.domain.plural import counted

if TYPE_CHECKING:
    from crosstrain.simulation.campaign.compare import Case, Summary
    from crosstrain.simulation.campaign.production import Played
    from crosstrain.simulation.campaign.realise import Realised
    from crosstrain.simulation.campaign.scenario import Scenario


def campaign(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO.toml", help="Sites, queues and work.")],
    starts: Annotated[int, typer.Option(min=1, max=1_000_000, help="Campaigns, each from another time.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Of made-up queues and of the starts.")] = 0,
    ledger: Annotated[
        bool, typer.Option("--ledger", help="Also play one campaign with the production coordinator and its ledger.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Compare the planner with waiting for all, submitting everywhere, the best single site, and hindsight."""
    from crosstrain.simulation.campaign.scenario import load_scenario, stage

    read = load_scenario(scenario)
    cases = [stage(site, scenario.parent, seed) for site in read.sites]
    found = _compare(cases, read, starts, seed)
    summaries = summarise(found)
    played = _production(cases, read, found, seed) if ledger else None
    if as_json:
        typer.echo(json.dumps(document(read, summaries, starts, seed, played)))
    else:
        show(read, summaries, starts, played)
    if played is not None and (played.problems or played.hours == inf):
        raise typer.Exit(1)


def _compare(cases: list[Case], read: Scenario, starts: int, seed: int) -> list[dict[str, Realised]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from crosstrain.simulation.campaign import compare

    strategies = {
        "wait_for_all": compare.middle(cases, together=True),
        "submit_everywhere": compare.middle(cases, together=False),
        "best_single_site": compare.best_single,
        "planner": compare.planner(visible=False),
        "planner_with_squeue": compare.planner(visible=True),
        "hindsight": compare.hindsight(),
    }
    columns = (TextColumn("campaigns"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not sys.stderr.isatty(), transient=True) as progress:
        task = progress.add_task("", total=starts)
        return compare.compare(
            cases, read.demand, strategies, starts, seed, lambda done: progress.update(task, completed=done)
        )


def summarise(found: list[dict[str, Realised]]) -> dict[str, Summary]:
    """Every strategy against waiting for all, and against hindsight."""
    from crosstrain.simulation.campaign import compare

    return {name: compare.summarise(found, name, "wait_for_all", "hindsight") for name in found[0]}


def _production(cases: list[Case], read: Scenario, found: list[dict[str, Realised]], seed: int) -> Played | None:
    """The median campaign of the planner, if it comes to an end."""
    from crosstrain.simulation.campaign.production import play_production

    ended = sorted((row["planner"] for row in found if row["planner"].finish_s < inf), key=lambda each: each.finish_s)
    if not ended:
        return None
    middle = ended[len(ended) // 2]
    names = [case.name for case in cases]
    return play_production(names, middle.speeds, middle, read.demand, seed)


def document(
    read: Scenario, summaries: dict[str, Summary], starts: int, seed: int, played: Played | None
) -> dict[str, Any]:
    """The JSON form."""
    return {
        "starts": starts,
        "seed": seed,
        "tokens": read.tokens,
        "sites": [site.name for site in read.sites],
        "strategies": {name: asdict(summary) for name, summary in summaries.items()},
        "ledger": None
        if played is None
        else {**asdict(played), "hours": None if played.hours == inf else played.hours},
    }


def show(read: Scenario, summaries: dict[str, Summary], starts: int, played: Played | None) -> None:
    """The text form."""
    typer.echo(
        f"{counted(starts, 'campaign')} of {read.tokens:.3g} tokens at {', '.join(site.name for site in read.sites)}\n"
    )
    typer.echo(
        f"{'':21}{'hours':>8}{'saved':>8}{'p10':>7}{'p50':>7}{'p90':>7}{'regret':>8}{'node-h':>10}{'idle':>8}{'not done':>10}"
    )
    for name, each in summaries.items():
        typer.echo(
            f"{name.replace('_', ' '):21}{each.hours:8.1f}{100 * each.saving:7.1f}%{100 * each.saving_p10:6.1f}%"
            f"{100 * each.saving_p50:6.1f}%{100 * each.saving_p90:6.1f}%{100 * each.regret:7.1f}%{each.node_hours:10,.0f}"
            f"{each.wasted:8,.0f}{100 * each.unfinished:9.1f}%"
        )
    typer.echo(
        "\nsaved: against waiting for all. regret: against the best choice in hindsight. idle: node-hours without training."
    )
    if played is not None:
        typer.echo(
            f"\nproduction coordinator and ledger, "
            f"the planner's median campaign: {played.hours:.2f} h for {counted(played.blocks, 'block')} in "
            f"{counted(played.generations, 'round')}; the simulation of rounds said {played.expected_hours:.2f} h"
        )
        for problem in played.problems:
            typer.echo(f"problem: {problem}")
