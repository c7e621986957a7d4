"""The plan in the terminal: what to do where, at 80 columns; the reasoning on request."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from crosstrain.dashboard.tables import plain_table
from crosstrain.dashboard.wording import NOTHING, clean, hours, span
from crosstrain.domain.plural import counted
from crosstrain.placement.shape import time_limit
from crosstrain.wire.placement import PlanReply, ShapeBody, SitePlanBody


def shape_text(shape: ShapeBody) -> str:
    """A shape in one cell: partition, nodes x GPUs, walltime."""
    gpus = f"x{shape.gpus}" if shape.gpus else ""
    return f"{clean(shape.partition)} {shape.nodes}{gpus} {time_limit(shape.walltime_s)}"


def plan_view(plan: PlanReply, why: bool = False) -> RenderableType:
    """What to submit where, and when the run would be done.

    Args:
        why: also the whole reasoning, with what was not chosen.
    """
    head = Text(f"run {plan.run}: ", style="bold")
    head.append(f"{plan.tokens_left:,.0f} tokens left")
    reason = Text(clean(plan.reason))
    if not plan.sites:
        return Group(head, reason)
    lines = _reasons(plan) if why else _sentences(plan)
    return Group(head, reason, Text(), _sites(plan), Text(), *lines, *_notes(plan))


def _sites(plan: PlanReply) -> RenderableType:
    table = plain_table("Plan")
    table.add_column("site\n  shape", overflow="fold")
    for name in ("\nnew", "\nkept", "trains\nfrom", "\n80 %", "share of\ntokens", "node-\nhours"):
        table.add_column(name, justify="right", no_wrap=True)
    total = sum(site.tokens for site in plan.sites)
    for site in plan.sites:
        shape = "" if site.shape is None else f"\n  {shape_text(site.shape)}"
        table.add_row(
            f"{site.site}{shape}",
            str(len(site.submit)),
            str(len(site.keep)),
            *_first_start(site),
            f"{100 * site.tokens / total:.0f} %" if total else NOTHING,
            f"{site.node_hours:,.0f}" if site.shape else NOTHING,
        )
    return table


def _first_start(site: SitePlanBody) -> tuple[str, str]:
    if not site.first_start_s:
        return NOTHING, NOTHING
    low, middle, high = site.first_start_s
    return hours(middle), span(low, high)


def _sentences(plan: PlanReply) -> Iterator[RenderableType]:
    for site in plan.sites:
        yield Text(clean(f"{site.site}: {site.summary}"))
        if site.note:
            yield _indented(site.note)
    yield Text()
    yield Text("The reasons, and what was not chosen: --why")


def _reasons(plan: PlanReply) -> Iterator[RenderableType]:
    for site in plan.sites:
        yield Text(clean(f"{site.site}, {site.role}: {site.reason}"), style="bold")
        for reason in (site.shape_reason, site.depth_reason, site.accumulation_reason, site.note):
            if reason:
                yield _indented(reason)
        if site.shape is not None:
            yield _indented(_expected(site))
        for other in site.alternatives:
            yield _indented(f"instead {other.what}: {_later(other.later_s)}")
        if site.heard_age_ms is not None:
            yield _indented(f"its queue was seen {hours(site.heard_age_ms / 1000)} ago")
    for other in plan.alternatives:
        yield Text(clean(f"{other.what}: {_later(other.later_s)}"))


def _expected(site: SitePlanBody) -> str:
    passes = "" if site.accumulation is None else f", {counted(site.accumulation, 'pass', 'passes')} a step"
    return (
        f"{counted(site.depth, 'job')} queued ahead{passes}; it would train {site.tokens:.3g} tokens "
        f"in {site.active_h:.1f} h of about {counted(round(site.jobs), 'job')}"
    )


def _indented(sentence: str) -> RenderableType:
    return Padding(Text(clean(sentence)), (0, 0, 0, 2))


def _notes(plan: PlanReply) -> Iterator[Text]:
    for note in plan.notes:
        yield Text(clean(f"note: {note}"))


def _later(seconds: float | None) -> str:
    if seconds is None:
        return "the run would not be done"
    return f"done {hours(seconds)} later" if seconds >= 0 else f"done {hours(-seconds)} earlier"
