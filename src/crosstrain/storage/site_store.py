"""Sites, their sessions and their totals (the ledger table of design section 4)."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, RowMapping, bindparam, func, insert, select, update

from crosstrain.domain.ids import Instant, SessionId, SiteName
from crosstrain.storage import schema
from crosstrain.storage.prepared import Prepared, Row

_sites = schema.sites.c
_sessions = schema.sessions.c

_FIND = Prepared(select(schema.sites).where(_sites.name == bindparam("name")))
_SESSION = Prepared(select(schema.sessions).where(_sessions.id == bindparam("id")))
_SITES = Prepared(select(schema.sites).order_by(_sites.name))
_COUNTERS = ("grants", "granted_blocks", "merged_blocks", "lost_blocks", "shed_blocks", "ttl_expiries", "tokens")
_ADD_TOTALS = Prepared(
    update(schema.sites)
    .where(_sites.name == bindparam("site"))
    .values({_sites[name]: _sites[name] + bindparam(f"more_{name}", 0) for name in _COUNTERS})
)
_ADD_GRANT = Prepared(
    update(schema.sites)
    .where(_sites.name == bindparam("site"))
    .values(grants=_sites.grants + 1, granted_blocks=_sites.granted_blocks + bindparam("more"))
)

RATE_MEMORY = 0.5
"""Weight of the newest phase in a site's moving average rate."""


def open_session(
    connection: Connection,
    site: SiteName,
    ranks: int,
    windows_per_step: int,
    inner_state: str,
    software: str,
    now: Instant,
) -> SessionId:
    """Registers a session; every earlier session of the site is over from now on."""
    connection.execute(update(schema.run).values(next_session=schema.run.c.next_session + 1))
    session = SessionId(connection.execute(select(schema.run.c.next_session)).scalar_one() - 1)
    _note_entry(connection, site, ranks, windows_per_step, now)
    connection.execute(
        update(schema.sessions)
        .where(_sessions.site == site, _sessions.ended_at.is_(None))
        .values(ended_at=now, end_reason=f"superseded by session {session}")
    )
    connection.execute(
        insert(schema.sessions).values(
            id=session, site=site, opened_at=now, inner_state=inner_state, software=software, refused=0
        )
    )
    return session


def _note_entry(connection: Connection, site: SiteName, ranks: int, windows_per_step: int, now: Instant) -> None:
    """The row of a site that came, with what it has now."""
    if find(connection, site) is None:
        connection.execute(
            insert(schema.sites).values(
                name=site,
                first_seen_at=now,
                ranks=ranks,
                windows_per_step=windows_per_step,
                entries=0,
                **dict.fromkeys(_COUNTERS, 0),
            )
        )
    connection.execute(
        update(schema.sites)
        .where(_sites.name == site)
        .values(ranks=ranks, windows_per_step=windows_per_step, entries=_sites.entries + 1)
    )


def end_session(connection: Connection, session: SessionId, reason: str, now: Instant) -> None:
    connection.execute(
        update(schema.sessions)
        .where(_sessions.id == session, _sessions.ended_at.is_(None))
        .values(ended_at=now, end_reason=reason)
    )


def count_refusal(connection: Connection, session: SessionId) -> None:
    """One more contribution of the session was refused for its content."""
    connection.execute(update(schema.sessions).where(_sessions.id == session).values(refused=_sessions.refused + 1))


def forget_refusals(connection: Connection, session: SessionId) -> None:
    """A contribution of the session was accepted."""
    connection.execute(update(schema.sessions).where(_sessions.id == session, _sessions.refused > 0).values(refused=0))


def find(connection: Connection, site: SiteName) -> Row | None:
    return _FIND.first(connection, name=site)


def session(connection: Connection, identifier: SessionId) -> Row | None:
    return _SESSION.first(connection, id=identifier)


def sites(connection: Connection) -> Sequence[Row]:
    return _SITES.all(connection)


def open_sessions(connection: Connection) -> Sequence[RowMapping]:
    return connection.execute(select(schema.sessions).where(_sessions.ended_at.is_(None))).mappings().all()


def farewells(connection: Connection) -> dict[str, str]:
    """Why each site left whose newest session ended; a site that fell silent is not among them."""
    newest = select(func.max(_sessions.id)).group_by(_sessions.site)
    query = select(_sessions.site, _sessions.end_reason).where(
        _sessions.id.in_(newest), _sessions.ended_at.is_not(None)
    )
    return {row.site: row.end_reason or "" for row in connection.execute(query)}


def add_totals(connection: Connection, site: SiteName, **amounts: int) -> None:
    """Adds to a site's counters, for example `granted_blocks=5`."""
    _ADD_TOTALS.execute(connection, site=site, **{f"more_{name}": amount for name, amount in amounts.items()})


def add_grant(connection: Connection, site: SiteName, blocks: int) -> None:
    """Counts one more lease."""
    _ADD_GRANT.execute(connection, site=site, more=blocks)


def observe_phase(connection: Connection, site: SiteName, rate: float, progress_ms: float) -> None:
    """Takes a contributed phase into the site's measured rate (blocks per second) and step time."""
    row = find(connection, site)
    old = row["rate"] if row is not None else None
    value = rate if old is None else RATE_MEMORY * rate + (1 - RATE_MEMORY) * old
    connection.execute(update(schema.sites).where(_sites.name == site).values(rate=value, progress_ms=progress_ms))


def observe_rtt(connection: Connection, site: SiteName, rtt_ms: float) -> None:
    connection.execute(update(schema.sites).where(_sites.name == site).values(rtt_ms=rtt_ms))
