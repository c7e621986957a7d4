"""What the run looks like now: stored facts and stored reasons, nothing computed twice."""

from __future__ import annotations

import math
from collections.abc import Callable

from sqlalchemy import Connection

from crosstrain import __version__
from crosstrain.coordinator.service import Service
from crosstrain.domain.block import BlockState
from crosstrain.domain.generation import GenerationRecord
from crosstrain.domain.ids import Instant, SiteName
from crosstrain.domain.lease import Lease, LeaseState
from crosstrain.domain.ledger import count_blocks
from crosstrain.domain.site import Phase, Presence
from crosstrain.storage import lease_store, ledger_store, run_store, site_store
from crosstrain.storage.prepared import Row
from crosstrain.wire import messages

RECENT_EVENTS = 30


def status(service: Service, now: Instant) -> messages.StatusReply:
    """One consistent snapshot, with the sentence of the newest barrier verdict."""
    with service.presences.lock:
        present = {seen.site: seen for seen in service.presences.sessions.values()}
    with service.database.read() as connection:
        run = run_store.load(connection)
        assert run is not None
        chain = run_store.generations(connection)
        newest = chain[-1] if chain else None
        return messages.StatusReply(
            run=service.config.run.name,
            now=now,
            version=__version__,
            weights=newest.weights if newest else None,
            generation=newest.number if newest else None,
            rounds=service.config.run.rounds,
            global_step=newest.global_step if newest else 0,
            tokens=newest.tokens if newest else 0,
            epoch=int(run["epoch"]),
            blocks=block_counts(connection, service.corpus.blocks, int(run["epoch"])),
            waiting=service.barrier.reason,
            until=service.barrier.until,
            finished=run["finished_at"] is not None,
            finished_reason=run["finished_reason"] or "",
            sites=site_rows(connection, present),
            generations=generation_rows(connection, chain),
            events=tuple(
                messages.EventStatus(at=row["at"], kind=row["kind"], site=row["site"], text=row["text"])
                for row in run_store.recent_events(connection, RECENT_EVENTS)
            ),
        )


def block_counts(connection: Connection, blocks: int, epoch: int) -> messages.BlockCounts:
    """Blocks per state over all epochs that were opened."""
    counts = ledger_store.counts(connection)
    return messages.BlockCounts(
        total=blocks * (epoch + 1),
        available=counts[BlockState.AVAILABLE],
        leased=counts[BlockState.LEASED],
        contributed=counts[BlockState.CONTRIBUTED],
        merged=counts[BlockState.MERGED],
    )


def generation_rows(
    connection: Connection, chain: tuple[GenerationRecord, ...]
) -> tuple[messages.GenerationStatus, ...]:
    """The chain with its held-out measures."""
    losses = {row["generation"]: row["loss"] for row in run_store.evaluations(connection)}
    return tuple(
        messages.GenerationStatus(
            generation=record.number,
            global_step=record.global_step,
            tokens=record.tokens,
            contributions=record.contributions,
            eta=record.eta,
            beta=record.beta,
            published_at=record.published_at,
            loss=losses.get(record.number),
            perplexity=_perplexity(losses.get(record.number)),
        )
        for record in chain
    )


def _perplexity(loss: float | None) -> float | None:
    """None also where it is beyond what a float holds: a model can be that bad."""
    return math.exp(loss) if loss is not None and loss < 700 else None


def site_rows(connection: Connection, present: dict[SiteName, Presence]) -> tuple[messages.SiteStatus, ...]:
    """One row per site that ever registered; sums over them equal the run's totals."""
    leases = {lease.site: lease for lease in lease_store.in_state(connection, LeaseState.LIVE)}
    waiting = {state: lease_store.in_state(connection, state) for state in (LeaseState.LIVE, LeaseState.CONTRIBUTED)}
    left = site_store.farewells(connection)
    spans = ledger_store.spans_of(connection, [lease.token for found in waiting.values() for lease in found])

    def held(site: str, state: LeaseState) -> int:
        return sum(count_blocks(spans[lease.token]) for lease in waiting[state] if lease.site == site)

    return tuple(
        _site_row(row, present.get(SiteName(row["name"])), leases.get(SiteName(row["name"])), held, left)
        for row in site_store.sites(connection)
    )


def _site_row(
    row: Row,
    seen: Presence | None,
    lease: Lease | None,
    held: Callable[[str, LeaseState], int],
    left: dict[str, str],
) -> messages.SiteStatus:
    beat = seen.beat if seen else None
    return messages.SiteStatus(
        name=row["name"],
        alive=seen is not None,
        phase=beat.phase.value if beat else "away",
        doing=_doing(seen, left.get(row["name"])),
        done=beat.done if beat else 0,
        total=beat.total if beat else 0,
        loss=beat.loss if beat else None,
        lease_blocks=lease.blocks if lease else None,
        ranks=row["ranks"],
        rtt_ms=row["rtt_ms"],
        rate=row["rate"],
        entries=row["entries"],
        grants=row["grants"],
        granted_blocks=row["granted_blocks"],
        merged_blocks=row["merged_blocks"],
        leased_blocks=held(row["name"], LeaseState.LIVE),
        contributed_blocks=held(row["name"], LeaseState.CONTRIBUTED),
        lost_blocks=row["lost_blocks"],
        shed_blocks=row["shed_blocks"],
        ttl_expiries=row["ttl_expiries"],
        tokens=row["tokens"],
    )


def _doing(seen: Presence | None, left: str | None) -> str:
    if seen is None:
        return f"left: {left}" if left is not None else "not heard of; it may be queued, ended or cut off"
    beat = seen.beat
    beside = f"; {beat.beside}" if beat.beside else ""
    if beat.phase is Phase.WAITING:
        return (seen.answer or beat.detail or "waiting") + beside
    progress = f" {beat.done} of {beat.total}" if beat.total else ""
    return f"{beat.phase.value}{progress}" + (f" ({beat.detail})" if beat.detail else "") + beside
