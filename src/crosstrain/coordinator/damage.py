"""Blobs that were there and cannot be read any more, whatever took them away: a disk, a hand, a bucket.

Before it is judged, a delta is sent again. When its round is merged, its contribution is dropped, so that the round goes on without
it. What sites download is made again (`publisher.make_again`). The float32 weights and the momentum of the newest generation have
no such way out: without them there is nothing to go on from.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import Connection, RowMapping

from crosstrain.coordinator import sessions
from crosstrain.coordinator.service import Service
from crosstrain.domain.block import BlockState
from crosstrain.domain.events import EventKind
from crosstrain.domain.generation import GenerationRecord
from crosstrain.domain.ids import Digest, Instant, SessionId, SiteName, Token
from crosstrain.domain.lease import LeaseState
from crosstrain.domain.ledger import count_blocks, move
from crosstrain.errors import IntegrityError, Refused
from crosstrain.storage import lease_store, ledger_store, run_store, site_store
from crosstrain.storage.weights_file import Entry, WeightsFile

log = logging.getLogger(__name__)


@contextmanager
def irreplaceable(parent: GenerationRecord) -> Iterator[None]:
    """Says what to do about blobs of the newest generation that cannot be read: nothing goes on without them."""
    try:
        yield
    except IntegrityError as error:
        raise IntegrityError(
            f"Generation {parent.number} cannot be followed: {error.message}",
            "put the blob back from a backup of coordinator.dir or the bucket, and start the coordinator again",
        ) from error


def drop_unreadable(
    service: Service, parent: GenerationRecord, rows: Sequence[RowMapping], now: Instant
) -> tuple[RowMapping, ...]:
    """The contributions of a closed round that can be merged. The others are dropped, and a round of which none is left is opened
    again.

    Raises:
        IntegrityError: the weights that the round started from, or their momentum, cannot be read.
    """
    model = _model(service, parent)
    reasons = {Token(row["token"]): _fault(service, row, model) for row in rows}
    damaged = [row for row in rows if reasons[row["token"]]]
    left = tuple(row for row in rows if not reasons[row["token"]])
    if damaged:
        with service.database.write() as connection:
            for row in damaged:
                _drop(connection, row, reasons[row["token"]], now)
            if not left:
                run_store.reopen_round(connection, parent.number)
        for row in damaged:
            service.deltas.forget(Digest(row["delta"]))
            service.objects.delete(Digest(row["delta"]))  # it would be held if the same came again
    return left


def _model(service: Service, parent: GenerationRecord) -> tuple[Entry, ...]:
    with irreplaceable(parent):
        if parent.momentum is not None:
            WeightsFile(service.objects.path(parent.momentum)).close()
        with WeightsFile(service.objects.path(parent.master)) as weights:
            return weights.entries


def require_intact(service: Service, digest: Digest) -> None:
    """Looks again at a blob that came and cannot be read. If it is what came, then so it was made.

    Raises:
        Refused: `missing-blob`, it is lost or damaged; it is removed, so that it can come again.
    """
    try:
        service.objects.verify(digest)
    except IntegrityError as error:
        service.objects.delete(digest)
        raise Refused(
            f"Blob {digest[:12]} is not here any more: {error.message}", "send it again", kind="missing-blob"
        ) from error


def _fault(service: Service, row: RowMapping, model: Sequence[Entry]) -> str:
    """Why a delta cannot be merged; empty if it can."""
    try:
        with service.deltas.open(Digest(row["delta"]), model) as delta:
            return delta.difference(model)
    except IntegrityError as error:
        return error.message


def _drop(connection: Connection, row: RowMapping, fault: str, now: Instant) -> None:
    """contributed -> available, and so the blocks of the lease ahead that follows it."""
    token, site = Token(row["token"]), SiteName(row["site"])
    reason = f"its delta cannot be read any more: {fault}"
    log.error("the contribution of lease %d of %s is dropped: %s", token, site, reason)
    lease = lease_store.find(connection, token)
    assert lease is not None
    sessions.give_back_followers(connection, lease, now)
    held = ledger_store.held(connection, token)
    change = move(held, EventKind.DROPPED, ledger_store.neighbours(connection, held, BlockState.AVAILABLE))
    ledger_store.apply(connection, change)
    lease_store.end(connection, lease, LeaseState.DROPPED, reason, now)
    lease_store.no_longer_accepted(connection, token, reason)
    site_store.add_totals(connection, site, lost_blocks=count_blocks(held))
    run_store.log_change(connection, change, token, site, SessionId(row["session"]), lease.generation, reason, now)
