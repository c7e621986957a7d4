"""Leases and contributions."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import Connection, RowMapping, bindparam, func, insert, select, update

from crosstrain.domain.contribution import Contribution, Judgement
from crosstrain.domain.ids import Digest, Generation, Instant, SessionId, SiteName, Token
from crosstrain.domain.lease import Lease, LeaseState
from crosstrain.errors import IntegrityError
from crosstrain.storage import schema

_leases = schema.leases.c
_contributions = schema.contributions.c
_COUNTED = [state.value for state in (LeaseState.LIVE, LeaseState.CONTRIBUTED, LeaseState.MERGED)]

# Built once: making a statement costs SQLAlchemy as much as running it, and these run for every request.
_FIND = select(schema.leases).where(_leases.token == bindparam("token"))
_IN_STATE = select(schema.leases).where(_leases.state == bindparam("state")).order_by(_leases.token)
_LIVE = select(schema.leases).where(_leases.state == LeaseState.LIVE.value)
_LIVE_OF_SESSION = _LIVE.where(_leases.session == bindparam("session"))
_LIVE_OF_SITE = _LIVE.where(_leases.site == bindparam("site"))
_ACCEPTED = (
    select(schema.contributions)
    .where(_contributions.generation == bindparam("generation"), _contributions.accepted)
    .order_by(_contributions.token)
)
_ROUND_BEGUN = select(func.min(_leases.granted_at)).where(
    _leases.generation == bindparam("generation"), _leases.state.in_(_COUNTED)
)


def next_token(connection: Connection) -> Token:
    """Draws a fencing token; it is used up even if the lease it was for is never granted."""
    connection.execute(update(schema.run).values(next_token=schema.run.c.next_token + 1))
    return Token(connection.execute(select(schema.run.c.next_token)).scalar_one() - 1)


def add(connection: Connection, lease: Lease, reason: str) -> None:
    connection.execute(insert(schema.leases).values(**{**asdict(lease), "state": lease.state.value}, reason=reason))


def find(connection: Connection, token: Token) -> Lease | None:
    row = connection.execute(_FIND, {"token": token}).mappings().one_or_none()
    return None if row is None else _lease(row)


def in_state(connection: Connection, state: LeaseState) -> tuple[Lease, ...]:
    rows = connection.execute(_IN_STATE, {"state": state.value})
    return tuple(_lease(row) for row in rows.mappings())


def live_of_session(connection: Connection, session: SessionId) -> Lease | None:
    """The lease a session holds; it never holds two."""
    row = connection.execute(_LIVE_OF_SESSION, {"session": session}).mappings().one_or_none()
    return None if row is None else _lease(row)


def live_of_site(connection: Connection, site: SiteName) -> tuple[Lease, ...]:
    rows = connection.execute(_LIVE_OF_SITE, {"site": site})
    return tuple(_lease(row) for row in rows.mappings())


def end(connection: Connection, lease: Lease, state: LeaseState, reason: str, now: Instant) -> None:
    """Moves a lease out of its present state.

    Raises:
        IntegrityError: the stored lease is not in the state that the decision saw.
    """
    changed = connection.execute(
        update(schema.leases)
        .where(_leases.token == lease.token, _leases.state == lease.state.value, _leases.session == lease.session)
        .values(state=state.value, ended_at=now, reason=reason)
    )
    if changed.rowcount != 1:
        raise IntegrityError(
            f"Lease {lease.token} is not {lease.state} any more.", "this is a bug: nothing was written"
        )


def shorten(connection: Connection, lease: Lease, blocks: int) -> None:
    """Notes that a live lease holds fewer blocks from now on."""
    connection.execute(
        update(schema.leases)
        .where(_leases.token == lease.token, _leases.state == LeaseState.LIVE.value)
        .values(blocks=blocks)
    )


def hand_over(connection: Connection, lease: Lease, session: SessionId) -> None:
    """Gives a live lease to a newer session of the same site, which resumes its work."""
    connection.execute(
        update(schema.leases)
        .where(_leases.token == lease.token, _leases.state == LeaseState.LIVE.value)
        .values(session=session)
    )


def add_contribution(
    connection: Connection,
    claim: Contribution,
    lease: Lease,
    judgement: Judgement,
    norm: float | None,
    now: Instant,
) -> None:
    """Keeps a contribution, accepted or refused; one per lease, for ever."""
    connection.execute(
        insert(schema.contributions).values(
            **asdict(claim),
            site=lease.site,
            session=lease.session,
            norm=norm,
            received_at=now,
            accepted=judgement.accepted,
            kind=judgement.kind,
            reason=judgement.reason,
        )
    )


def contribution(connection: Connection, token: Token) -> RowMapping | None:
    """The stored row of a lease's contribution."""
    return (
        connection.execute(select(schema.contributions).where(_contributions.token == token)).mappings().one_or_none()
    )


def accepted(connection: Connection, generation: Generation) -> tuple[RowMapping, ...]:
    """Accepted contributions of a round in their canonical order, by token."""
    return tuple(connection.execute(_ACCEPTED, {"generation": generation}).mappings())


def all_contributions(connection: Connection) -> tuple[RowMapping, ...]:
    return tuple(connection.execute(select(schema.contributions).order_by(_contributions.token)).mappings())


def all_leases(connection: Connection) -> tuple[RowMapping, ...]:
    return tuple(connection.execute(select(schema.leases).order_by(_leases.token)).mappings())


def recent_norms(connection: Connection, count: int) -> tuple[float, ...]:
    """Norms of the newest accepted contributions, newest last."""
    rows = connection.execute(
        select(_contributions.norm)
        .where(_contributions.accepted, _contributions.norm.is_not(None))
        .order_by(_contributions.token.desc())
        .limit(count)
    )
    return tuple(float(norm) for (norm,) in rows)[::-1]


def granted_blocks(connection: Connection, generation: Generation) -> int:
    """Blocks of all leases of a round."""
    return int(
        connection.execute(select(func.sum(_leases.blocks)).where(_leases.generation == generation)).scalar() or 0
    )


def round_begun(connection: Connection, generation: Generation) -> Instant | None:
    """When the first lease of a round was granted that is live or contributed."""
    begun = connection.execute(_ROUND_BEGUN, {"generation": generation}).scalar()
    return None if begun is None else Instant(begun)


def _lease(row: RowMapping) -> Lease:
    return Lease(
        Token(row["token"]),
        SiteName(row["site"]),
        SessionId(row["session"]),
        Generation(row["generation"]),
        row["global_step"],
        row["blocks"],
        Instant(row["granted_at"]),
        row["ttl_ms"],
        LeaseState(row["state"]),
    )


def claim_of(row: RowMapping) -> Contribution:
    """The claim of a stored contribution."""
    return Contribution(
        Token(row["token"]),
        Generation(row["generation"]),
        row["blocks"],
        row["windows"],
        row["tokens"],
        row["steps"],
        Digest(row["delta"]),
        row["windows_digest"],
        row["loss"],
    )
