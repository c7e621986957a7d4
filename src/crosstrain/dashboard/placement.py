"""The plan and the forecasts in the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from crosstrain.dashboard.tables import plain_table
from crosstrain.dashboard.wording import NOTHING, clean
from crosstrain.wire.placement import PlanReply, ShapeBody, SitePlanBody, WaitRow, WaitsReply


def duration(seconds: float | None) -> str:
    """For people; a dash for what is not known or never."""
    if seconds is None:
        return NOTHING
    if abs(seconds) >= 48 * 3600:
        return f"{seconds / 86400:.1f} d"
    return f"{seconds / 3600:.1f} h" if abs(seconds) >= 3600 else f"{seconds / 60:.0f} min"


def shape_text(shape: ShapeBody | None) -> str:
    """A shape in one cell."""
    if shape is None:
        return NOTHING
    gpus = f"x{shape.gpus}" if shape.gpus else ""
    return f"{clean(shape.partition)} {shape.nodes}{gpus} {shape.walltime_s / 3600:g} h"


def plan_view(plan: PlanReply) -> RenderableType:
    """The plan: what to submit where, when it would be done, and why."""
    finish = plan.finish_s
    band = f"80 % between {duration(finish['0.1'])} and {duration(finish['0.9'])}"
    head = Text(f"run {plan.run}: ", style="bold")
    head.append(f"{plan.tokens_left:,.0f} tokens left")
    if plan.sites and plan.tokens_left:
        head.append(f", done in {duration(finish['0.5'])} ({band})")
    reason = Text(clean(plan.reason))
    if not plan.sites:
        return Group(head, reason)
    return Group(head, reason, Text(), _sites(plan), Text(), *_reasons(plan), *_others(plan))


def _sites(plan: PlanReply) -> RenderableType:
    table = plain_table("Plan")
    for name in ("site", "role", "shape"):
        table.add_column(name, no_wrap=True)
    for name in ("ahead", "accum.", "submit", "keep", "first start", "tokens", "trains h", "node-h", "seen"):
        table.add_column(name, justify="right")
    for site in plan.sites:
        table.add_row(
            site.site,
            site.role,
            shape_text(site.shape),
            str(site.depth),
            NOTHING if site.accumulation is None else str(site.accumulation),
            str(len(site.submit)),
            str(len(site.keep)),
            _first_start(site),
            f"{site.tokens:.3g}",
            f"{site.active_h:.1f}",
            f"{site.node_hours:.0f}",
            NOTHING if site.heard_age_ms is None else duration(site.heard_age_ms / 1000),
        )
    return table


def _first_start(site: SitePlanBody) -> str:
    if not site.first_start_s:
        return NOTHING
    low, middle, high = site.first_start_s
    return f"{duration(middle)} ({duration(low)} - {duration(high)})"


def _reasons(plan: PlanReply) -> Iterator[Text]:
    for site in plan.sites:
        yield Text(clean(f"{site.site}: {site.reason}"), style="bold")
        for reason in (site.shape_reason, site.depth_reason, site.accumulation_reason):
            if reason:
                yield Text(f"  {clean(reason)}")
        for other in site.alternatives:
            yield Text(f"  instead {other.what}: {_later(other.later_s)}", style="dim")


def _others(plan: PlanReply) -> Iterator[Text]:
    for other in plan.alternatives:
        yield Text(f"{other.what}: {_later(other.later_s)}", style="dim")
    for note in plan.notes:
        yield Text(clean(f"note: {note}"))


def _later(seconds: float | None) -> str:
    if seconds is None:
        return "the run would not be done"
    return f"done {duration(seconds)} later" if seconds >= 0 else f"done {duration(-seconds)} earlier"


def waits_view(waits: WaitsReply) -> RenderableType:
    """Forecasts of waits, each beside what earlier ones were worth."""
    if not waits.rows:
        return Text("no site has reported of its queue yet: run `crosstrain collect` at each")
    table = plain_table("Waits of a job submitted now, and the record of past error")
    for name in ("site", "shape", "basis"):
        table.add_column(name, no_wrap=True)
    for name in ("point", "50 %", "80 %", "90 %", "scheduler", "n", "in 80 %", "MAE", "bias", "vs raw", "vs discount"):
        table.add_column(name, justify="right")
    for row in waits.rows:
        table.add_row(row.site, shape_text(row.shape), row.basis, duration(row.point_s), *_bands(row), *_record(row))
    notes = (Text(clean(f"{site}: {note}")) for site, all_notes in waits.notes.items() for note in all_notes)
    reasons = (Text(clean(f"{row.site}, {shape_text(row.shape)}: {row.reason}"), style="dim") for row in waits.rows)
    return Group(table, Text(), *reasons, *notes)


def _bands(row: WaitRow) -> tuple[str, ...]:
    return tuple(
        f"{duration(row.bands_s[level][0])} - {duration(row.bands_s[level][1])}" for level in ("0.5", "0.8", "0.9")
    )


def _record(row: WaitRow) -> tuple[str, ...]:
    error = row.error
    return (
        duration(row.test_only_s),
        str(error.outcomes),
        NOTHING if error.coverage is None else f"{100 * error.coverage[1]:.0f} %",
        duration(error.mean_absolute_s),
        duration(error.bias_s),
        NOTHING if error.over_raw is None else f"{error.over_raw:.2f}",
        NOTHING if error.over_discounted is None else f"{error.over_discounted:.2f}",
    )
