"""`crosstrain chaos`."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from crosstrain.cli.amounts import between
from crosstrain.cli.local_run import ends_with_its_children, run_directory


class Engine(StrEnum):
    TITAN = "titan"
    COUNTING = "counting"


def chaos(
    minutes: Annotated[float, typer.Option(callback=between(0.05, 10_000), help="How long things go wrong.")] = 5.0,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**63 - 1, help="Of the faults; default: from the time.")
    ] = None,
    sites: Annotated[int, typer.Option(help="How many sites.")] = 3,
    engine: Annotated[
        Engine, typer.Option(help="`titan` trains; `counting` is a stand-in that is faster.")
    ] = Engine.TITAN,
    keep: Annotated[Path | None, typer.Option(metavar="DIR", help="New directory for the run; it stays.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Kill, stop and cut off the processes of a run at random, and prove that nothing was lost or counted twice.

    Real processes on this machine. What goes wrong, and when, follows from the seed. Exit code 1: something was lost, is in
    the model twice, or is not recomputed bit for bit, or the run made no progress.
    """
    from rich.console import Console

    from crosstrain.clock import SystemClock
    from crosstrain.demo.chaos import play, prepare, report
    from crosstrain.demo.chaos.forwarder import Network
    from crosstrain.demo.prepare import free_port
    from crosstrain.demo.watching import Lines

    clock = SystemClock()
    begun_s = clock.perf()
    number = clock.now() % 1_000_000 if seed is None else seed
    wishes = prepare.Wishes(minutes, number, sites, engine.value)
    prepare.check(wishes)
    port = free_port()
    with ends_with_its_children(), run_directory(keep) as directory, Network(wishes.names, port) as network:
        from crosstrain.cli.corpus import progress

        with progress() as show:
            files = prepare.prepare(directory, wishes, port, network, show)
        typer.echo("\n".join(report.story(wishes)), err=True)
        played = play.play(files, wishes, network, Lines(Console(stderr=True, highlight=False)))
        typer.echo("Auditing the run.", err=True)
        findings = report.examine(files, wishes)
        if as_json:
            typer.echo(json.dumps(report.document(wishes, played, findings, clock.perf() - begun_s)))
        else:
            kept = f"The run is in {directory}." if keep else "Nothing is kept; --keep DIR would keep the run."
            report.tell(Console(highlight=False), wishes, played, findings, kept)
    if report.problems(played, findings):
        raise typer.Exit(1)
