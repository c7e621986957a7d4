"""What `crosstrain simulate table4` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from crosstrain.simulation.table4 import Scenario


def document(found: dict[str, Scenario]) -> dict[str, Any]:
    """The JSON form; tokens are counts, not billions."""
    return {
        name: {
            "days": scenario.days,
            "finish_h": scenario.finish_h,
            "wait_all_h": scenario.wait_all_h,
            "best_single_h": scenario.best_single_h,
            "saving": scenario.saving,
            "sites": {
                site: {"wait_h": row.wait_h, "active_h": row.active_h, "jobs": row.jobs, "tokens": row.tokens}
                for site, row in scenario.sites.items()
            },
        }
        for name, scenario in found.items()
    }


def show(found: dict[str, Scenario]) -> None:
    """The text form."""
    typer.echo("Two sites wait as given (wait h), then train without a gap (active h) until 10^11 tokens are done.")
    typer.echo("A: both queues are short. B: Snellius waits 40 h. C: LUMI waits 40 h.\n")
    typer.echo(f"{'':2}{'site':10}{'wait h':>8}{'active h':>10}{'jobs':>6}{'10^9 tokens':>13}")
    for name, scenario in found.items():
        for site, row in scenario.sites.items():
            billions = row.tokens / 1e9
            typer.echo(f"{name:2}{site:10}{row.wait_h:8.1f}{row.active_h:10.2f}{row.jobs:6}{billions:13.2f}")
        typer.echo(
            f"{name:2}done after {scenario.finish_h:.2f} h = {scenario.days:.3f} days; waiting for both "
            f"{scenario.wait_all_h:.2f} h, shorter by {100 * scenario.saving:.1f} %; "
            f"best site alone {scenario.best_single_h:.2f} h"
        )
    typer.echo("The published 18 % and 43 % are the savings of B and C: they follow from the 40 h that were chosen.")
