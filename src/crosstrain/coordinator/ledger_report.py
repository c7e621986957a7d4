"""What became of every lease, by site, from the database alone: it can be asked while the coordinator runs and after."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from crosstrain.coordinator.status import block_counts, site_rows
from crosstrain.domain.block import Corpus
from crosstrain.domain.plural import counted
from crosstrain.errors import UsageError
from crosstrain.storage import run_store
from crosstrain.storage.database import Database
from crosstrain.wire.messages import BlockCounts, SiteStatus


@dataclass(frozen=True, slots=True)
class LedgerReport:
    """The ledger's totals.

    Attributes:
        blocks: per state, over all epochs that were opened.
        generation: newest one, None before generation 0.
        problems: sums that do not agree; there are none in a run that nobody changed by hand.
    """

    run: str
    generation: int | None
    blocks: BlockCounts
    sites: tuple[SiteStatus, ...]
    problems: tuple[str, ...]


def ledger_report(database: Database) -> LedgerReport:
    """Reads one snapshot.

    Raises:
        UsageError: the database holds no run.
    """
    with database.read() as connection:
        run = run_store.load(connection)
        if run is None:
            raise UsageError("The database holds no run.", "start `crosstrain coordinator` first")
        identity = json.loads(run["corpus"])
        corpus = Corpus(identity["windows"], identity["block_windows"])
        newest = run_store.newest_generation(connection)
        blocks = block_counts(connection, corpus.blocks, int(run["epoch"]))
        sites = site_rows(connection, {})
    return LedgerReport(
        run=str(run["name"]),
        generation=None if newest is None else newest.number,
        blocks=blocks,
        sites=sites,
        problems=tuple(_problems(blocks, sites)),
    )


def _problems(blocks: BlockCounts, sites: tuple[SiteStatus, ...]) -> Iterator[str]:
    for site in sites:
        parts = site.merged_blocks + site.contributed_blocks + site.leased_blocks + site.lost_blocks + site.shed_blocks
        if parts != site.granted_blocks:
            yield f"site {site.name} was granted {counted(site.granted_blocks, 'block')}, {parts} are accounted for"
    for state in ("merged", "contributed", "leased"):
        of_sites, of_run = sum(getattr(site, f"{state}_blocks") for site in sites), getattr(blocks, state)
        if of_sites != of_run:
            yield f"the sites have {of_sites} {state} blocks, the run has {of_run}"
    states = blocks.available + blocks.leased + blocks.contributed + blocks.merged
    if states != blocks.total:
        yield f"{states} blocks are in a state, the run has {blocks.total}"
