"""What the answer to a session that asks for work is decided on, by one statement: a grant is the most frequent write."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, and_, bindparam, exists, func, select, true

from crosstrain.domain.ids import Digest, Generation, Instant, SessionId, SiteName, Token
from crosstrain.domain.lease import Lease, LeaseState
from crosstrain.storage import schema
from crosstrain.storage.lease_store import COLUMNS, begun_at, lease_of
from crosstrain.storage.prepared import Prepared

_sessions, _sites, _run = schema.sessions.c, schema.sites.c, schema.run.c
_generations, _rounds, _leases = schema.generations.c, schema.rounds.c, schema.leases.c
_contributions, _evaluations = schema.contributions.c, schema.evaluations.c

_newest = select(func.max(_generations.number)).scalar_subquery()
_contributed = exists().where(
    _contributions.generation == _generations.number,
    _contributions.site == _sessions.site,
    _contributions.accepted,
)
_evaluated = exists().where(_evaluations.generation == _generations.number)
_begun = begun_at(_generations.number)
_ASKING = Prepared(
    select(
        _sessions.site,
        _sessions.ended_at,
        _sessions.end_reason,
        _sessions.refused,
        _sites.windows_per_step,
        _sites.rate,
        _sites.progress_ms,
        _sites.rtt_ms,
        _run.epoch,
        _run.next_token,
        _run.finished_at,
        _run.finished_reason,
        _generations.number,
        _generations.weights,
        _generations.packed,
        _generations.global_step,
        _rounds.closing_at,
        _rounds.published_at,
        _rounds.reason.label("closing"),
        _contributed.label("contributed"),
        _evaluated.label("evaluated"),
        _begun.label("begun_at"),
        *COLUMNS,
    )
    .select_from(schema.sessions)
    .join(schema.sites, _sites.name == _sessions.site)
    .join(schema.run, true())
    .outerjoin(schema.generations, _generations.number == _newest)
    .outerjoin(schema.rounds, _rounds.generation == _generations.number)
    .outerjoin(
        schema.leases,
        and_(
            _leases.session == _sessions.id,
            _leases.state == LeaseState.LIVE.value,
            _leases.generation == _generations.number,
        ),
    )
    .where(_sessions.id == bindparam("session"))
)


@dataclass(frozen=True, slots=True)
class Model:
    """The newest generation, as far as a site is told of it (`GenerationRecord`)."""

    number: Generation
    weights: Digest
    packed: Digest | None
    global_step: int


@dataclass(frozen=True, slots=True)
class Asking:
    """A session, its site and the run around them, as one write transaction finds them.

    Attributes:
        end_reason: why the session is over, None while it is open.
        refused: its contributions that were refused for their content since one was accepted.
        windows_per_step, rate, progress_ms, rtt_ms: of the site, as in `sites`.
        epoch: that blocks are leased from.
        next_token: for `lease_store.draw`.
        finished: why the run is over, None while it goes on.
        closing: why the round is being merged, None while it is open.
        contributed: whether a contribution of the site to the open round was accepted.
        evaluated: whether the newest generation has its held-out measure.
        begun_at: when the open round began, None if it did not yet.
        lease: the session's live one of the open round; it never holds two of one round.
    """

    session: SessionId
    site: SiteName
    end_reason: str | None
    refused: int
    windows_per_step: int
    rate: float | None
    progress_ms: float | None
    rtt_ms: float | None
    epoch: int
    next_token: Token
    finished: str | None
    model: Model | None
    closing: str | None
    contributed: bool
    evaluated: bool
    begun_at: Instant | None
    lease: Lease | None


def asking(connection: Connection, session: SessionId) -> Asking | None:
    """Everything about a session that asks; None for an unknown one."""
    rows = _ASKING.tuples(connection, session=session)
    if not rows:
        return None
    site, ended_at, end_reason, refused, windows_per_step, rate, progress_ms, rtt_ms, *rest = rows[0]
    epoch, next_token, finished_at, finished_reason, number, weights, packed, *rest = rest
    global_step, closing_at, published_at, closing, contributed, evaluated, begun_at, *lease = rest
    return Asking(
        session,
        SiteName(site),
        None if ended_at is None else str(end_reason),
        refused,
        windows_per_step,
        rate,
        progress_ms,
        rtt_ms,
        epoch,
        Token(next_token),
        None if finished_at is None else str(finished_reason),
        None if number is None else Model(Generation(number), Digest(weights), packed and Digest(packed), global_step),
        closing if closing_at is not None and published_at is None else None,
        bool(contributed),
        bool(evaluated),
        None if begun_at is None else Instant(begun_at),
        None if lease[0] is None else lease_of(lease),
    )
