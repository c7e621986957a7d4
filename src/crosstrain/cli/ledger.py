"""`crosstrain ledger`: what became of every lease, by site."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from crosstrain.coordinator.ledger_report import LedgerReport
    from crosstrain.wire.messages import SiteStatus

WIDTH = 110
"""Columns of the table where the output is no terminal."""


def ledger(
    run: Annotated[Path, typer.Argument(metavar="RUN.toml", help="The run file, on the coordinator's machine.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show what every site was granted and what became of it, from the database alone; exit code 1 if sums differ."""
    from crosstrain.assembly import open_run, open_stored_run
    from crosstrain.coordinator.ledger_report import ledger_report

    database, _ = open_stored_run(open_run(run))
    try:
        report = ledger_report(database)
    finally:
        database.close()
    if as_json:
        typer.echo(json.dumps(_document(report)))
    else:
        print_table(report.sites)
        typer.echo("\n" + _sentence(report))
    for problem in report.problems:
        typer.echo(f"problem: {problem}", err=True)
    if report.problems:
        raise typer.Exit(1)


def print_table(sites: Sequence[SiteStatus]) -> None:
    """The whole table on standard output; in two parts where the terminal is too narrow for it."""
    from rich.console import Console

    from crosstrain.dashboard.tables import ledger_table, narrow_ledger_tables

    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    table = ledger_table(sites, whole=True)
    if console.measure(table, options=console.options.update(max_width=10 * WIDTH)).maximum <= console.width:
        console.print(table)
        return
    meetings, blocks = narrow_ledger_tables(sites)
    console.print(meetings, "", blocks, sep="\n")


def site_documents(sites: Sequence[SiteStatus]) -> dict[str, Any]:
    """The table's rows and totals for JSON."""
    from crosstrain.dashboard.tables import ledger_amounts, ledger_totals

    rows = [{"site": site.name, "ranks": site.ranks, "rtt_ms": site.rtt_ms, **ledger_amounts(site)} for site in sites]
    return {"sites": rows, "total": ledger_totals(sites)}


def _document(report: LedgerReport) -> dict[str, Any]:
    return {
        "run": report.run,
        "generation": report.generation,
        **site_documents(report.sites),
        "blocks": report.blocks.model_dump(),
        "problems": list(report.problems),
    }


def _sentence(report: LedgerReport) -> str:
    blocks = report.blocks
    share = 100 * blocks.merged / blocks.total
    place = "no generation yet" if report.generation is None else f"generation {report.generation}"
    return f"run {report.run}, {place}: {blocks.merged:,} of {blocks.total:,} blocks are merged ({share:.1f} %)"
