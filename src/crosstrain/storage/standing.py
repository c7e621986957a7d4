"""What a heartbeat needs to know of its session and lease, by one statement: it is the most frequent request."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import bindparam, func, select

from crosstrain.domain.ids import Generation, Instant, SessionId, SiteName, Token
from crosstrain.domain.lease import LeaseState
from crosstrain.storage import schema
from crosstrain.storage.database import Database
from crosstrain.storage.lease_store import begun_at
from crosstrain.storage.prepared import Prepared

_sessions, _leases, _generations = schema.sessions.c, schema.leases.c, schema.generations.c
_newest = select(func.max(_generations.number)).scalar_subquery()
_begun = begun_at(_newest)
_STANDING = Prepared(
    select(
        _sessions.site,
        _sessions.ended_at,
        _sessions.end_reason,
        _leases.session.label("holder"),
        _leases.state,
        _leases.ttl_ms,
        _leases.generation.label("base"),
        _newest.label("generation"),
        _begun.label("begun_at"),
    )
    .select_from(schema.sessions)
    .outerjoin(schema.leases, _leases.token == bindparam("token"))
    .where(_sessions.id == bindparam("session"))
)


@dataclass(frozen=True, slots=True)
class Standing:
    """A session's place in the run, as committed.

    Attributes:
        end_reason: why the session is over, None while it is open.
        lease: what became of the lease asked about, None if there is no such lease.
        lease_is_ours: whether it is this session's.
        base: the generation that the lease starts from.
        generation: the newest one.
        begun_at: when the open round began, None if it did not yet.
    """

    site: SiteName
    end_reason: str | None
    lease: LeaseState | None
    lease_is_ours: bool
    ttl_ms: int
    base: Generation | None
    generation: Generation | None
    begun_at: Instant | None

    @property
    def lease_lives(self) -> bool:
        return self.lease is LeaseState.LIVE and self.lease_is_ours

    @property
    def is_ahead(self) -> bool:
        """Whether the lease is of the round after the open one."""
        return self.base is not None and self.generation is not None and self.base > self.generation


def standing(database: Database, session: SessionId, token: Token | None) -> Standing | None:
    """Where a session and the lease that it names stand; None for an unknown session."""
    row = database.lookup(_STANDING, session=session, token=token)
    if row is None:
        return None
    return Standing(
        SiteName(row["site"]),
        None if row["ended_at"] is None else str(row["end_reason"]),
        None if row["state"] is None else LeaseState(row["state"]),
        row["holder"] == session,
        row["ttl_ms"] or 0,
        None if row["base"] is None else Generation(row["base"]),
        None if row["generation"] is None else Generation(row["generation"]),
        None if row["begun_at"] is None else Instant(row["begun_at"]),
    )
