"""Forecasts of waits in the terminal, at 80 columns, each beside what earlier ones were worth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from crosstrain.dashboard.placement import shape_text
from crosstrain.dashboard.tables import plain_table
from crosstrain.dashboard.wording import NOTHING, clean, hours, span
from crosstrain.wire.placement import WaitRow, WaitsReply

_BASIS = {"test-only": "scheduler", "plan": "own plan", "partition-limit": "limit", "unknown": "nothing"}
"""In a narrow column; the others are two words that wrap."""


def waits_view(waits: WaitsReply, why: bool = False) -> RenderableType:
    """Forecasts as bands, then how wrong earlier ones were.

    Args:
        why: also what every forecast was made from.
    """
    if not waits.rows:
        return Text("no site has reported of its queue yet: run `crosstrain collect` at each")
    judged = [row for row in waits.rows if row.error.outcomes]
    record = _records(judged) if judged else Text("The outcome of no forecast is known yet.")
    reasons = [line for row in waits.rows for line in _reasons(row)] if why else []
    notes = (Text(clean(f"{site}: {note}")) for site, all_notes in waits.notes.items() for note in all_notes)
    return Group(_forecasts(waits.rows), Text(), record, Text(), *reasons, *notes)


def _forecasts(rows: Sequence[WaitRow]) -> Table:
    table = _by_shape("Wait of a job submitted now", ("point", "50 %", "80 %", "90 %"))
    table.add_column("by", max_width=9)
    for row in _under_sites(table, rows):
        bands = (span(*row.bands_s[level]) for level in ("0.5", "0.8", "0.9"))
        basis = _BASIS.get(row.basis, row.basis.replace("-", " "))
        table.add_row(f"  {shape_text(row.shape)}", hours(row.point_s), *bands, basis)
    return table


def _records(rows: Sequence[WaitRow]) -> Table:
    table = _by_shape("How wrong earlier forecasts were", ("n", "in 80 %", "MAE", "bias", "vs raw", "vs discount"))
    for row in _under_sites(table, rows):
        error = row.error
        table.add_row(
            f"  {shape_text(row.shape)}",
            str(error.outcomes),
            NOTHING if error.coverage is None else f"{100 * error.coverage[1]:.0f} %",
            hours(error.mean_absolute_s),
            hours(error.bias_s),
            NOTHING if error.over_raw is None else f"{error.over_raw:.2f}",
            NOTHING if error.over_discounted is None else f"{error.over_discounted:.2f}",
        )
    return table


def _by_shape(title: str, columns: Sequence[str]) -> Table:
    table = plain_table(title)
    table.add_column("site\n  shape", overflow="fold")
    for name in columns:
        table.add_column(f"\n{name}", justify="right", no_wrap=True)
    return table


def _under_sites(table: Table, rows: Sequence[WaitRow]) -> Iterator[WaitRow]:
    """The rows, each site's below a row with its name."""
    for site, group in groupby(rows, key=lambda row: row.site):
        table.add_row(site)
        yield from group


def _reasons(row: WaitRow) -> Iterator[Text]:
    yield Text(clean(f"{row.site}, {shape_text(row.shape)}: {row.reason}"))
    told = [
        f"{name} {hours(seconds)}"
        for name, seconds in (("the scheduler's estimate", row.test_only_s), ("own plan", row.plan_s))
        if seconds is not None
    ]
    if told and row.probe_age_s is not None:
        yield Text(f"  {', '.join(told)}, {hours(row.probe_age_s)} ago")
