"""Which blobs are referred to, which are not needed since when, and which were removed."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, delete, insert, select

from crosstrain.domain.ids import Digest, Generation, Instant
from crosstrain.domain.lease import LeaseState
from crosstrain.domain.retention import DeltaUse, Mark, Stored, Uses
from crosstrain.storage import lease_store, run_store, schema

_contributions, _unneeded, _removals = schema.contributions.c, schema.unneeded.c, schema.removals.c


def uses(connection: Connection, downloads: frozenset[Digest], unknown_downloads: bool) -> Uses:
    """All references to blobs.

    Args:
        downloads, unknown_downloads: as in `Uses`; the database does not know them.
    """
    columns = (_contributions.delta, _contributions.generation, _contributions.accepted, _contributions.received_at)
    deltas = tuple(
        DeltaUse(Digest(digest), Generation(generation), bool(accepted), Instant(received_at))
        for digest, generation, accepted, received_at in connection.execute(select(*columns))
    )
    bases = frozenset(lease.generation for lease in lease_store.in_state(connection, LeaseState.LIVE))
    return Uses(run_store.generations(connection), deltas, bases, downloads, unknown_downloads)


def marks(connection: Connection) -> dict[Digest, Mark]:
    """What was noted as not needed."""
    rows = connection.execute(select(schema.unneeded)).mappings()
    return {
        Digest(row["digest"]): Mark(
            Stored(Digest(row["digest"]), row["size"], bool(row["whole"])), row["reason"], Instant(row["since"])
        )
        for row in rows
    }


def forget(connection: Connection, digests: Iterable[Digest]) -> None:
    """Takes notes back: what it says does not hold any more."""
    for digest in digests:
        connection.execute(delete(schema.unneeded).where(_unneeded.digest == digest))


def note(connection: Connection, fresh: Iterable[Mark]) -> None:
    """Notes blobs as not needed; an older note of the same one is forgotten."""
    for mark in fresh:
        forget(connection, [mark.stored.digest])
        size, whole = mark.stored.size, mark.stored.whole
        connection.execute(
            insert(schema.unneeded).values(
                digest=mark.stored.digest, size=size, whole=whole, reason=mark.reason, since=mark.since
            )
        )


def note_removal(connection: Connection, mark: Mark, now: Instant) -> None:
    """Says that the blob is removed on purpose, before it is."""
    digest = mark.stored.digest
    forget(connection, [digest])
    connection.execute(delete(schema.removals).where(_removals.digest == digest))
    connection.execute(
        insert(schema.removals).values(digest=digest, size=mark.stored.size, reason=mark.reason, removed_at=now)
    )


def removed(connection: Connection) -> frozenset[Digest]:
    """Blobs that were removed on purpose; one may have come again."""
    return frozenset(Digest(digest) for digest in connection.execute(select(_removals.digest)).scalars())
