"""The two tables that sum a run up: what became of the leases of each site, and how good each generation is."""

from __future__ import annotations

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


def ledger_table(status: StatusReply) -> Table:
    """One row per site and a row of totals: the columns of arXiv 2610.03457, Table 3, and what was shed.

    Granted, merged, lost and shed count blocks; what was granted and is in no other column is leased, or contributed and
    not merged yet.
    """
    table = _table("Blocks by site")
    table.add_column("site", no_wrap=True)
    for head in ("ranks", "RTT ms", *_COUNTED):
        table.add_column(head, justify="right")
    for site in status.sites:
        table.add_row(site.name, str(site.ranks), number(site.rtt_ms, 1), *map(str, _counts(site)))
    table.add_section()
    totals = [sum(column) for column in zip(*map(_counts, status.sites), strict=True)] or [0] * len(_COUNTED)
    ranks = sum(site.ranks for site in status.sites)
    table.add_row("total", str(ranks), "", *map(str, totals), style="bold")
    return table


def heldout_table(status: StatusReply) -> Table:
    """One row per generation; a dash where no site has measured it yet."""
    table = _table("Held-out text by generation")
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


def _counts(site: SiteStatus) -> list[int]:
    return [getattr(site, name) for name in _COUNTED.values()]


def _table(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        collapse_padding=True,
    )
