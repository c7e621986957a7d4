"""The two tables that sum a run up: what became of the leases of each site, and how good each generation is."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from crosstrain.dashboard.wording import NOTHING, number
from crosstrain.wire.messages import SiteStatus, StatusReply

_COUNTED = {
    "entries": "entries",
    "grants": "grants",
    "granted": "granted_blocks",
    "merged": "merged_blocks",
    "lost": "lost_blocks",
    "shed": "shed_blocks",
    "expiries": "ttl_expiries",
}
_OPEN = {"contributed": "contributed_blocks", "leased": "leased_blocks"}
_BLOCKS = ("merged", "contributed", "leased", "lost", "shed")
"""Columns that add up to what was granted."""
_MEETINGS = ("ranks", "RTT ms", "entries", "grants", "expiries")


def ledger_table(sites: Sequence[SiteStatus], whole: bool = False) -> Table:
    """One row per site and a row of totals: the columns of arXiv 2610.03457, Table 3, and what was shed.

    Granted, merged, lost and shed count blocks; what was granted and is in no other column is leased, or contributed and
    not merged yet.

    Args:
        whole: these two as columns as well, and a row of percentages of what was granted.
    """
    counted = {**_COUNTED, **_OPEN} if whole else _COUNTED
    return _by_site("Blocks by site", sites, ("ranks", "RTT ms", *counted), shares=whole)


def narrow_ledger_tables(sites: Sequence[SiteStatus]) -> tuple[Table, Table]:
    """The whole ledger table in two, for terminals of 80 columns: how often a site was there, and its blocks."""
    blocks = _by_site("Blocks by site", sites, ("granted", *_BLOCKS), shares=True)
    return _by_site("Sites", sites, _MEETINGS, shares=False), blocks


def _by_site(title: str, sites: Sequence[SiteStatus], heads: Sequence[str], shares: bool) -> Table:
    """Args: shares: adds a row of percentages of what was granted."""
    table = plain_table(title)
    table.add_column("site", no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right")
    for site in sites:
        amounts = ledger_amounts(site)
        cells = {"ranks": str(site.ranks), "RTT ms": number(site.rtt_ms, 1)}
        table.add_row(site.name, *(cells.get(head) or str(amounts[head]) for head in heads))
    table.add_section()
    totals = ledger_totals(sites)
    sums = {"ranks": str(sum(site.ranks for site in sites)), "RTT ms": ""}
    table.add_row("total", *(sums[head] if head in sums else str(totals[head]) for head in heads), style="bold")
    if shares and totals["granted"]:
        parts = {head: f"{100 * totals[head] / totals['granted']:.1f} %" for head in _BLOCKS}
        table.add_row("of granted", *(parts.get(head, "") for head in heads), style="dim")
    return table


def ledger_amounts(site: SiteStatus) -> dict[str, int]:
    """What the ledger's table counts of a site, by the names of its columns."""
    return {head: getattr(site, name) for head, name in {**_COUNTED, **_OPEN}.items()}


def ledger_totals(sites: Sequence[SiteStatus]) -> dict[str, int]:
    """The sums over all sites."""
    rows = [ledger_amounts(site) for site in sites]
    return {head: sum(row[head] for row in rows) for head in {**_COUNTED, **_OPEN}}


def heldout_table(status: StatusReply) -> Table:
    """One row per generation; a dash where no site has measured it yet."""
    table = plain_table("Held-out text by generation")
    for head in ("generation", "step", "tokens", "sites", "loss", "perplexity"):
        table.add_column(head, justify="right")
    for record in status.generations:
        table.add_row(
            str(record.generation),
            f"{record.global_step:,}",
            f"{record.tokens:,}",
            str(record.contributions) if record.generation else NOTHING,
            number(record.loss, 4),
            number(record.perplexity),
        )
    return table


def plain_table(title: str) -> Table:
    """A table without edges."""
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        collapse_padding=True,
    )
