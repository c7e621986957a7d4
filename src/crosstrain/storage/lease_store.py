"""Leases and contributions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    ScalarSelect,
    bindparam,
    case,
    insert,
    select,
    update,
)

from crosstrain.domain.contribution import Contribution, Judgement
from crosstrain.domain.ids import Digest, Generation, Instant, SessionId, SiteName, Token
from crosstrain.domain.lease import Lease, LeaseState
from crosstrain.errors import IntegrityError
from crosstrain.storage import schema
from crosstrain.storage.prepared import Prepared, Row

_leases = schema.leases.c
_contributions = schema.contributions.c
_round = schema.leases.alias("round").c
_opened = schema.rounds.alias("opened").c


def begun_at(generation: ColumnElement[int]) -> ScalarSelect[int]:
    """When a round began: with its first lease that is live or contributed, but not before it was open. Leases that are granted
    ahead (`round.overlap`) come before the generation they start from."""
    begun = case((_round.granted_at < _opened.opened_at, _opened.opened_at), else_=_round.granted_at)
    return (
        select(begun)
        .join_from(_round.token.table, _opened.generation.table, _opened.generation == _round.generation, isouter=True)
        .where(_round.generation == generation, schema.is_counted(_round.state))
        .order_by(_round.token)
        .limit(1)
        .scalar_subquery()
    )


COLUMNS = [_leases[field.name] for field in fields(Lease)]
"""What `lease_of` takes, in its order."""
_ALL = Prepared(select(schema.leases).order_by(_leases.token))
_FIND = Prepared(select(*COLUMNS).where(_leases.token == bindparam("token")))
_IN_STATE = Prepared(select(*COLUMNS).where(_leases.state == bindparam("state")).order_by(_leases.token))
_HOLDERS = Prepared(
    select(_leases.token, _leases.site, _leases.session, _leases.ttl_ms, _leases.generation)
    .where(_leases.state == LeaseState.LIVE.value)
    .order_by(_leases.token)
)
_LIVE = select(*COLUMNS).where(_leases.state == LeaseState.LIVE.value).order_by(_leases.token)
_LIVE_OF_SESSION = Prepared(_LIVE.where(_leases.session == bindparam("session")))
_LIVE_OF_SITE = Prepared(_LIVE.where(_leases.site == bindparam("site")))
_ACCEPTED = (
    select(schema.contributions)
    .where(_contributions.generation == bindparam("generation"), _contributions.accepted)
    .order_by(_contributions.token)
)
_ROUND_BEGUN = Prepared(select(begun_at(bindparam("generation"))))
_DRAW = Prepared(
    update(schema.run)
    .where(schema.run.c.next_token == bindparam("token"))
    .values(next_token=schema.run.c.next_token + 1)
)
_ADD = Prepared(insert(schema.leases).inline())
_END = Prepared(
    update(schema.leases)
    .where(
        _leases.token == bindparam("token_was"),
        _leases.state == bindparam("state_was"),
        _leases.session == bindparam("session_was"),
    )
    .values({name: bindparam(name) for name in ("state", "ended_at", "reason")})
)


def draw(connection: Connection, token: Token) -> None:
    """Uses the next fencing token up, even if the lease it is for is never granted.

    Raises:
        IntegrityError: it is not the next one.
    """
    if _DRAW.execute(connection, token=token) != 1:
        raise IntegrityError(f"Token {token} is not the next one.", "this is a bug: nothing was written")


def add(connection: Connection, lease: Lease, reason: str) -> None:
    values = {field.name: getattr(lease, field.name) for field in fields(lease)}
    _ADD.execute(connection, **{**values, "state": lease.state.value}, reason=reason)


def find(connection: Connection, token: Token) -> Lease | None:
    rows = _FIND.tuples(connection, token=token)
    return lease_of(rows[0]) if rows else None


def in_state(connection: Connection, state: LeaseState) -> tuple[Lease, ...]:
    return tuple(lease_of(row) for row in _IN_STATE.tuples(connection, state=state.value))


class Holder(NamedTuple):
    """Who holds a live lease."""

    token: Token
    site: SiteName
    session: SessionId
    ttl_ms: int
    generation: Generation


def holders(connection: Connection) -> list[Holder]:
    """All live leases in the order of grant, without what only their holders need: the loop looks at them every second."""
    return [Holder(*row) for row in _HOLDERS.tuples(connection)]


def live_of_session(connection: Connection, session: SessionId) -> tuple[Lease, ...]:
    """The leases a session holds: one, and with `round.overlap` one of the next round after it."""
    return tuple(lease_of(row) for row in _LIVE_OF_SESSION.tuples(connection, session=session))


def live_of_site(connection: Connection, site: SiteName) -> tuple[Lease, ...]:
    return tuple(lease_of(row) for row in _LIVE_OF_SITE.tuples(connection, site=site))


def end(connection: Connection, lease: Lease, state: LeaseState, reason: str, now: Instant) -> None:
    """Moves a lease out of its present state.

    Raises:
        IntegrityError: the stored lease is not in the state that the decision saw.
    """
    was = {"token_was": lease.token, "state_was": lease.state.value, "session_was": lease.session}
    if _END.execute(connection, **was, state=state.value, ended_at=now, reason=reason) != 1:
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


def no_longer_accepted(connection: Connection, token: Token, reason: str) -> None:
    """Takes the acceptance of a contribution back, before it is merged."""
    connection.execute(
        update(schema.contributions)
        .where(_contributions.token == token)
        .values(accepted=False, kind="damaged", reason=reason)
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


def all_leases(connection: Connection) -> tuple[Row, ...]:
    return tuple(_ALL.all(connection))


def recent_norms(connection: Connection, count: int) -> tuple[float, ...]:
    """Norms of the newest accepted contributions, newest last."""
    rows = connection.execute(
        select(_contributions.norm)
        .where(_contributions.accepted, _contributions.norm.is_not(None))
        .order_by(_contributions.token.desc())
        .limit(count)
    )
    return tuple(float(norm) for (norm,) in rows)[::-1]


def round_begun(connection: Connection, generation: Generation) -> Instant | None:
    """When a round began, None if it did not yet (`begun_at`)."""
    begun = _ROUND_BEGUN.scalar(connection, generation=generation)
    return None if begun is None else Instant(begun)


def lease_of(row: Sequence[Any]) -> Lease:
    """The lease of a row of `COLUMNS`."""
    *values, state = row
    return Lease(*values, LeaseState(state))  # type: ignore[call-arg]


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
