"""What `crosstrain simulate darl-table3` prints."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from crosstrain.cli.ledger import print_table, site_documents
from crosstrain.domain.plural import counted

if TYPE_CHECKING:
    from crosstrain.simulation.table3 import StaticSplit, Table3


def document(found: Table3) -> dict[str, Any]:
    """The JSON form."""
    from crosstrain.simulation.table3 import PUBLISHED

    return {
        "seed": found.seed,
        **asdict(found.setting),
        "departures": [asdict(departure) for departure in found.departures],
        **site_documents(found.ledger.sites),
        "generation": found.ledger.generation,
        "leased_hours": found.leased_hours,
        "static": {"equal": _split(found.equal), "proportional": _split(found.proportional)},
        "published": PUBLISHED,
        "problems": [*found.ledger.problems, *found.audit_problems],
    }


def _split(split: StaticSplit) -> dict[str, Any]:
    return {"blocks": dict(split.blocks), "covered": dict(split.covered), "total": split.total, "hours": split.hours}


def show(found: Table3) -> None:
    """The text form."""
    print_table(found.ledger.sites)
    for line in _lines(found):
        typer.echo(line)


def _lines(found: Table3) -> list[str]:
    from crosstrain.dashboard.tables import ledger_totals
    from crosstrain.simulation.table3 import PUBLISHED

    totals, blocks = ledger_totals(found.ledger.sites), found.setting.blocks
    hours = found.setting.seconds / 3600
    left = [
        f"  {each.site} is killed at {each.at_s / 3600:.1f} h, back {each.away_s / 3600:.1f} h later"
        for each in found.departures
    ]
    splits = [
        f"  {name:22} {total:5,} blocks ({100 * total / blocks:4.1f} %), the whole corpus after {whole:5.1f} h"
        for name, total, whole in (
            ("leases", totals["merged"], found.leased_hours),
            ("split in equal thirds", found.equal.total, found.equal.hours),
            ("split by known rates", found.proportional.total, found.proportional.hours),
        )
    ]
    problems = [*found.ledger.problems, *found.audit_problems]
    return [
        "",
        f"{counted(blocks, 'block', spec=',')}, {hours:.1f} h, seed {found.seed}, "
        f"generation {found.ledger.generation}. Departures:",
        *left,
        "",
        "Merged in this time, at the pace that each site had, departures included:",
        *splits,
        "A split covers the sum over sites of min(its part, what it merged): a part is nobody else's.",
        "",
        "Published for this setting (arXiv 2610.03457): {granted:,} granted, {merged:,} committed, {lost} reclaimed, "
        "{expiries} TTL expiries.".format(**PUBLISHED),
        "The paper names neither the sites' speed nor the length of a phase: this plays its setting, not its numbers.",
        *(f"problem: {problem}" for problem in problems),
        *([] if problems else ["audit clean: no block is in two states or in the model twice, sums agree"]),
    ]
