"""What is left of the run, and how fast its sites and its rounds have been, from the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from sqlalchemy import Connection

from crosstrain.config import RunConfig
from crosstrain.domain.block import BlockState, Corpus
from crosstrain.domain.ids import SiteName
from crosstrain.placement.offer import Demand
from crosstrain.storage import lease_store, ledger_store, placement_store, run_store, site_store

RECENT = 5
"""Rounds that a typical round is taken from."""


def demand(connection: Connection, config: RunConfig, corpus: Corpus, seq_len: int) -> Demand:
    """What is left: rounds that are planned, or the corpus if it ends first; nothing once the run is finished."""
    run = run_store.progress(connection)
    newest = run_store.newest_generation(connection)
    round_tokens = typical_round(connection, config, seq_len)
    rounds_left = config.run.rounds - (newest.number if newest else 0)
    epoch, counts = int(run["epoch"]), ledger_store.counts(connection, int(run["epoch"]))
    windows_left = (config.run.epochs - epoch) * corpus.windows - counts[BlockState.MERGED] * corpus.block_windows
    left = 0.0 if run["finished_at"] is not None else min(rounds_left * round_tokens, float(windows_left * seq_len))
    return Demand(max(0.0, left), round_tokens, typical_exchange(connection), config.round.batch_windows)


def typical_round(connection: Connection, config: RunConfig, seq_len: int) -> float:
    """Tokens of a round: the median of the last ones; before any, H steps of the combined batch."""
    chain = run_store.generations(connection)[-RECENT - 1 :]
    merged = [after.tokens - before.tokens for before, after in pairwise(chain) if after.tokens > before.tokens]
    if merged:
        return float(median(merged))
    batch = sum(row["windows_per_step"] for row in site_store.sites(connection))
    windows = config.round.batch_windows or batch or config.site.windows_per_step
    return float(config.inner.steps * windows * seq_len)


def typical_exchange(connection: Connection) -> float:
    """Seconds of a round in which its slowest site did not train, median of the last rounds; 0 before any."""
    rates = {row["name"]: row["rate"] for row in site_store.sites(connection) if row["rate"]}
    longest: dict[int, float] = {}
    for row in lease_store.all_contributions(connection):
        if row["accepted"] and row["site"] in rates:
            trained = row["blocks"] / rates[row["site"]]
            longest[row["generation"]] = max(trained, longest.get(row["generation"], 0.0))
    spent = [
        max(0.0, (row["published_at"] - row["opened_at"]) / 1000 - longest[row["generation"]])
        for row in run_store.published_rounds(connection, RECENT)
        if row["generation"] in longest
    ]
    return float(median(spent)) if spent else 0.0


def exchanges(connection: Connection, site: SiteName) -> list[float]:
    """Seconds of checkpoint and upload in the site's last phases: what passed from grant to contribution, without the
    training at its measured rate. Empty before it has contributed."""
    row = site_store.find(connection, site)
    rate = row["rate"] if row is not None else None
    if not rate:
        return []
    spans = placement_store.phase_spans(connection, site, RECENT)
    return [max(0.0, spent - blocks / rate) for blocks, spent in spans]


def speeds(connection: Connection, corpus: Corpus, seq_len: int, sites: Sequence[str]) -> dict[str, float]:
    """Tokens per second of sites that have trained, as measured over whole phases."""
    tokens_per_block = corpus.block_windows * seq_len
    rows = {row["name"]: row["rate"] for row in site_store.sites(connection)}
    return {site: rows[site] * tokens_per_block for site in sites if rows.get(site)}
