"""Removes blobs that are not needed: note, wait for the grace, say so in the database, look again, remove.

Only whoever holds the term gets through the transactions, so a superseded coordinator removes nothing. The last look is in
the transaction around the removal itself: a contribution is recorded in a transaction too, and looks there whether its
delta is still in the store. Each blob has a transaction of its own, with one short request in it, because nobody else writes
meanwhile; an upload on its way, to which nothing can refer, is removed outside. A crash in between leaves a blob that is noted
again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from crosstrain.config import CoordinatorSection
from crosstrain.coordinator.service import Service
from crosstrain.domain import timeouts
from crosstrain.domain.ids import Digest, Instant
from crosstrain.domain.retention import Mark, Retention, Sorting, sort_out
from crosstrain.domain.site import Phase
from crosstrain.storage import retention_store
from crosstrain.storage.database import Database
from crosstrain.storage.object_store import ObjectStore

log = logging.getLogger(__name__)

MOST_AT_ONCE = 32
"""Blobs that one pass removes: removing a large file takes a while, and the loop does nothing else meanwhile."""


def retention_of(section: CoordinatorSection) -> Retention:
    """The settings of RUN.toml."""
    return Retention(
        section.keep_generations,
        section.keep_every,
        round(1000 * timeouts.INSPECTION_S),
        round(1000 * timeouts.GRACE_S),
    )


def grace_of(section: CoordinatorSection) -> int:
    """How long what is not needed stays, milliseconds."""
    return retention_of(section).grace_ms


@dataclass(frozen=True, slots=True)
class Downloads:
    """What sites are fetching; see `domain.retention.Uses`."""

    known: frozenset[Digest] = frozenset()
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class Collection:
    """What a pass found.

    Attributes:
        removed: gone now; in a dry run what would be.
        waiting: in their grace.
    """

    removed: tuple[Mark, ...]
    waiting: tuple[Mark, ...]


def look(
    database: Database, objects: ObjectStore, retention: Retention, now: Instant, downloads: Downloads | None = None
) -> Sorting:
    """What a pass would do; nothing is changed."""
    stored = list(objects.stored())  # before the references: what comes in between is not in the list
    fetched = downloads or Downloads()
    with database.read() as connection:
        uses = retention_store.uses(connection, fetched.known, fetched.unknown)
        return sort_out(stored, retention_store.marks(connection), uses, retention, now)


def collect(
    database: Database, objects: ObjectStore, retention: Retention, now: Instant, downloads: Downloads | None = None
) -> Collection:
    """One pass.

    Raises:
        Superseded: another coordinator took the run over; nothing was removed since.
    """
    fetched = downloads or Downloads()
    objects.sweep()
    found = look(database, objects, retention, now, fetched)
    due = found.due[:MOST_AT_ONCE]
    if found.fresh or found.over or due:
        with database.write() as connection:
            retention_store.forget(connection, found.over)
            retention_store.note(connection, found.fresh)
            for mark in due:
                retention_store.note_removal(connection, mark, now)
    removed = _remove(database, objects, retention, now, fetched, due) if due else ()
    return Collection(removed, (*found.waiting, *found.fresh, *found.due[MOST_AT_ONCE:]))


def _remove(
    database: Database,
    objects: ObjectStore,
    retention: Retention,
    now: Instant,
    downloads: Downloads,
    due: tuple[Mark, ...],
) -> tuple[Mark, ...]:
    """Removes those of `due` that nothing needs yet."""
    removed = []
    for mark in due:
        digest, whole = mark.stored.digest, mark.stored.whole
        with database.write() as connection:
            uses = retention_store.uses(connection, downloads.known, downloads.unknown)
            if not sort_out([mark.stored], {digest: mark}, uses, retention, now).due:
                continue
            if whole:
                objects.delete(digest)
        if not whole:
            objects.discard(digest)
        removed.append(mark)
    return tuple(removed)


def collect_for(service: Service, now: Instant) -> Collection:
    """One pass of a serving coordinator; says in the log what it removed."""
    retention = retention_of(service.config.coordinator)
    found = collect(service.database, service.objects, retention, now, _downloads(service))
    for mark in found.removed:
        log.info("removed blob %s of %d bytes: %s", mark.stored.digest[:12], mark.stored.size, mark.reason)
    return found


def _downloads(service: Service) -> Downloads:
    """Sites that adopt a generation; of one that was told before this process began, it is not known which."""
    presences = service.presences
    with presences.lock:
        for session in presences.adopting.keys() - presences.sessions.keys():
            del presences.adopting[session]
        unknown = any(
            seen.beat.phase is Phase.ADOPTING and session not in presences.adopting
            for session, seen in presences.sessions.items()
        )
        return Downloads(frozenset(presences.adopting.values()), unknown)
