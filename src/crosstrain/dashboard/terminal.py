"""A run on a terminal, drawn from one status reply. Reasons are the coordinator's sentences; none is made here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from crosstrain.dashboard.figures import Bar, Part, done_of, sparkline
from crosstrain.dashboard.tables import heldout_table, ledger_table
from crosstrain.dashboard.wording import NOTHING, clean, clock_time, duration, number
from crosstrain.domain.plural import counted
from crosstrain.wire.messages import EventStatus, SiteStatus, StatusReply

__all__ = ["heldout_table", "ledger_table", "render"]

WIDE = 110
"""From this width on, a site's sentence has a column; below, a line under the site."""
BAR_WIDTH = 12
SPARK_WIDTH = 24
EVENTS = 8
FIXED_LINES = 16
"""Lines of the view beside sites and events."""
WORDS = 16
"""Least room for a sentence beside something else."""


def render(status: StatusReply, below: int = 0) -> RenderableType:
    """The whole view; it fits itself to the width it is printed at, and its events to a terminal's height.

    Args:
        below: lines of the terminal that something else needs.
    """
    return _View(status, below)


@dataclass(frozen=True, slots=True)
class _View:
    status: StatusReply
    below: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        status, wide = self.status, options.max_width >= WIDE
        yield Rule(Text(f"run {clean(status.run)}", "bold"), align="left", style="dim")
        yield _head(status, options.ascii_only)
        yield _blocks(status)
        yield Text()
        yield _waiting(status)
        yield _sites(status, wide)
        events = EVENTS
        if console.is_terminal:
            rows = len(status.sites) * (1 if wide else 2)
            events = min(EVENTS, options.size.height - self.below - FIXED_LINES - rows)
        if status.events and events > 0:
            yield _events(status.events[-events:])


def _head(status: StatusReply, ascii_only: bool) -> RenderableType:
    table = _labelled()
    if status.generation is None:
        place = f"no generation yet, {counted(status.rounds, 'round', spec=',')} planned"
    else:
        place = f"generation {status.generation:,} of {status.rounds:,}"
        if not status.finished:
            place = f"{status.generation + 1:,} of {status.rounds:,}, from generation {status.generation:,}"
    table.add_row("round", Text(place, "bold"))
    table.add_row(
        "trained",
        f"{counted(status.tokens, 'token', spec=',')} in {counted(status.global_step, 'step', spec=',')}, epoch {status.epoch}",
    )
    table.add_row("held out", _quality(status, ascii_only))
    return table


def _quality(status: StatusReply, ascii_only: bool) -> Text:
    measured = [record for record in status.generations if record.loss is not None]
    if not measured:
        return Text("not measured yet", "dim")
    first, last = measured[0], measured[-1]
    text = Text.assemble("perplexity ", (number(last.perplexity), "bold"), f" at generation {last.generation}")
    if len(measured) > 1:
        if not ascii_only:
            # Of the losses: perplexities fall so steeply at first that the rest would look flat.
            text.append("  " + sparkline([record.loss or 0.0 for record in measured], SPARK_WIDTH), "cyan")
        text.append(f"  {number(first.perplexity)} at {first.generation}", "dim")
    return text


def _blocks(status: StatusReply) -> RenderableType:
    """The open epoch; earlier ones are merged to their last block, or it would not be open."""
    counts = status.blocks
    before = counts.total // (status.epoch + 1) * status.epoch
    amounts = {
        "merged": max(0, counts.merged - before),
        "contributed": counts.contributed,
        "leased": counts.leased,
        "available": counts.available,
    }
    looks = {
        "merged": ("█", "#", "green"),
        "contributed": ("▓", "+", "cyan"),
        "leased": ("▒", "-", "yellow"),
        "available": ("░", ".", "dim"),
    }
    parts = tuple(Part(amount, *looks[state]) for state, amount in amounts.items())
    table = _labelled()
    table.add_row("blocks", Bar(parts))
    table.add_row("", _Legend(parts, tuple(amounts)))
    return table


@dataclass(frozen=True, slots=True)
class _Legend:
    parts: tuple[Part, ...]
    names: tuple[str, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = Text()
        for part, name in zip(self.parts, self.names, strict=True):
            text.append(part.plain if options.ascii_only else part.glyph, part.style)
            text.append(f" {part.amount:,} {name}   ")
        text.rstrip()
        yield text


def _waiting(status: StatusReply) -> RenderableType:
    table = _labelled()
    if status.finished:
        table.add_row("finished", Text(clean(status.finished_reason), "bold green"))
        return table
    sentence = Text(clean(status.waiting) or NOTHING)
    if status.until is not None:
        left = duration(status.until - status.now)
        sentence.append(f" (until {clock_time(status.until)} UTC, in {left})", "dim")
    table.add_row("now", sentence)
    return table


def _sites(status: StatusReply, wide: bool) -> RenderableType:
    if not status.sites:
        return Text("\nNo site has come yet.", "dim")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("site", no_wrap=True, overflow="ellipsis", max_width=20)
    table.add_column("phase", no_wrap=True)
    table.add_column("lease", no_wrap=True)
    for head in ("loss", "merged", "lost"):
        table.add_column(head, justify="right", no_wrap=True)
    if wide:
        table.add_column("doing", min_width=WORDS, ratio=1)
    for site in status.sites:
        table.add_row(*_site(site), *([_doing(site)] if wide else []))
    return Group(Text(), table) if wide else Group(Text(), table, Text(), _sentences(status.sites))


def _site(site: SiteStatus) -> list[RenderableType]:
    # Other phases count bytes, or nothing.
    training = site.lease_blocks is not None and site.phase == "training" and site.total > 0
    blocks = NOTHING if site.lease_blocks is None else f"{counted(site.lease_blocks, 'block', spec=',')}"
    return [
        Text(clean(site.name), "bold" if site.alive else "dim"),
        Text(clean(site.phase), "" if site.alive else "red"),
        _progress(site) if training else Text(blocks),
        number(site.loss),
        f"{site.merged_blocks:,}",
        Text(f"{site.lost_blocks:,}", "red" if site.lost_blocks else ""),
    ]


def _progress(site: SiteStatus) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=BAR_WIDTH)
    grid.add_column(no_wrap=True, justify="right")
    grid.add_row(done_of(site.done, site.total, BAR_WIDTH), f"{site.done:,}/{site.total:,}")
    return grid


def _doing(site: SiteStatus) -> Text:
    return Text(clean(site.doing), "" if site.alive else "red")


def _sentences(sites: tuple[SiteStatus, ...]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=20)
    table.add_column()
    for site in sites:
        table.add_row(Text(site.name, "bold" if site.alive else "dim"), _doing(site))
    return table


def _events(events: Sequence[EventStatus]) -> RenderableType:
    rows = [
        (clock_time(event.at), clean(event.kind), clean(event.site or NOTHING), clean(event.text)) for event in events
    ]
    table = Table.grid(padding=(0, 2))
    for _ in range(3):
        table.add_column(no_wrap=True, overflow="ellipsis", max_width=20)
    # Cut by its text and not by its column, because rich takes room from columns that wrap before all others.
    table.add_column(ratio=1)
    for at, kind, site, text in rows:
        words = Text(text, "dim", no_wrap=True, overflow="ellipsis")
        table.add_row(Text(at, "dim"), kind, Text(site, "dim" if site == NOTHING else "bold"), words)
    return Group(Text(), Text("Last events", "bold"), table)


def _labelled() -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", width=8, no_wrap=True)
    table.add_column(ratio=1)
    return table
