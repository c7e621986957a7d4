"""`crosstrain demo`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crosstrain.cli.local_run import ends_with_its_children, run_directory

if TYPE_CHECKING:
    from crosstrain.demo.watching import Watcher


def demo(
    inputs: Annotated[
        list[Path] | None,
        typer.Option(
            "--input", metavar="PATH", help="Text to train on; may be repeated. Default: Python's own sources."
        ),
    ] = None,
    sites: Annotated[int, typer.Option(help="How many sites.")] = 3,
    rounds: Annotated[int, typer.Option(help="How many rounds.")] = 16,
    no_faults: Annotated[bool, typer.Option("--no-faults", help="Kill nothing.")] = False,
    keep: Annotated[Path | None, typer.Option(metavar="DIR", help="New directory for the run; it stays.")] = None,
    vocab: Annotated[int, typer.Option(help="Tokens of the tokenizer; fewer for a short --input.")] = 2048,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of weights, order of blocks and sample.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Train a small model at several sites on this machine, kill some of it, and show that nothing was lost.

    Real processes: a coordinator and sites that join late, lose their lease, and come back. Exit code 1: the audit found
    problems.
    """
    from rich.console import Console

    from crosstrain.clock import SystemClock
    from crosstrain.demo import play, prepare, report

    begun_s = SystemClock().perf()
    wishes = prepare.Wishes(tuple(inputs or ()), sites, rounds, not no_faults, seed, vocab)
    prepare.check(wishes)
    with ends_with_its_children(), run_directory(keep) as directory:
        from crosstrain.cli.corpus import progress

        with progress() as show:
            files = prepare.prepare(directory, wishes, show)
        with _watcher(as_json) as watcher:
            played = play.play(files, wishes, watcher)
        typer.echo("Auditing the run, and letting the model write.", err=True)
        findings = report.examine(files, wishes)
        wall_s = SystemClock().perf() - begun_s
        if as_json:
            typer.echo(json.dumps(report.document(played, findings, wall_s)))
        else:
            kept = f"The run is in {directory}." if keep else "Nothing is kept; --keep DIR would keep the run."
            report.tell(Console(highlight=False), played, findings, wall_s, kept)
    if not findings.audit.ok:
        raise typer.Exit(1)


@contextlib.contextmanager
def _watcher(as_json: bool) -> Iterator[Watcher]:
    from rich.console import Console
    from rich.live import Live

    from crosstrain.demo.watching import Lines, LiveView

    console = Console(stderr=True, highlight=False)
    if as_json or not console.is_terminal:
        yield Lines(console)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield LiveView(live)
