"""Queues as collectors reported them, and the plans that were made."""

from __future__ import annotations

import json
from dataclasses import asdict

from pydantic import TypeAdapter
from sqlalchemy import Connection, delete, func, insert, select, update

from crosstrain.domain.ids import Instant, SiteName
from crosstrain.placement.plan import Plan
from crosstrain.placement.site_queue import SiteQueue
from crosstrain.storage import schema

REMEMBERED_MS = 30 * 86_400_000
"""How long a report that was taken in is recognised when it comes again."""

_QUEUE = TypeAdapter(SiteQueue)
_PLAN = TypeAdapter(Plan)
_queues = schema.queues.c
_reports = schema.reports.c
_sessions = schema.sessions.c
_leases = schema.leases.c
_contributions = schema.contributions.c


def queues(connection: Connection) -> tuple[SiteQueue, ...]:
    """All sites that were ever reported of, by name."""
    rows = connection.execute(select(_queues.queue).order_by(_queues.site)).scalars()
    return tuple(_QUEUE.validate_json(row) for row in rows)


def queue_text(connection: Connection, site: SiteName) -> str | None:
    """What is kept of one site, for `decoded`; None if nobody reported of it."""
    return connection.execute(select(_queues.queue).where(_queues.site == site)).scalar_one_or_none()


def decoded(text: str) -> SiteQueue:
    """From `queue_text`. With thousands of jobs this takes a tenth of a second: not for a write transaction."""
    return _QUEUE.validate_json(text)


def encoded(held: SiteQueue) -> str:
    """The inverse of `decoded`."""
    return _QUEUE.dump_json(held).decode()


def keep_queue(connection: Connection, site: SiteName, heard_at: Instant, text: str) -> None:
    """Replaces what is kept of a site.

    Args:
        text: from `encoded`.
    """
    values = {"queue": text, "heard_at": heard_at}
    changed = connection.execute(update(schema.queues).where(_queues.site == site).values(**values))
    if changed.rowcount == 0:
        connection.execute(insert(schema.queues).values(site=site, **values))


def was_reported(connection: Connection, report: str) -> bool:
    """Whether a report was taken in."""
    return connection.execute(select(_reports.report).where(_reports.report == report)).first() is not None


def is_new_report(connection: Connection, report: str, site: SiteName, now: Instant) -> bool:
    """Notes a report; False if it was noted before."""
    if was_reported(connection, report):
        return False
    connection.execute(delete(schema.reports).where(_reports.received_at < now - REMEMBERED_MS))
    connection.execute(insert(schema.reports).values(report=report, site=site, received_at=now))
    return True


def first_grants(connection: Connection, site: SiteName, count: int) -> list[tuple[Instant, Instant]]:
    """(opened, granted its first lease) of the newest sessions of a site that were granted one, oldest first."""
    query = (
        select(_sessions.opened_at, func.min(_leases.granted_at))
        .join(schema.leases, _leases.session == _sessions.id)
        .where(_sessions.site == site)
        .group_by(_sessions.id, _sessions.opened_at)
        .order_by(_sessions.id.desc())
        .limit(count)
    )
    return [(Instant(opened), Instant(granted)) for opened, granted in reversed(connection.execute(query).all())]


def phase_spans(connection: Connection, site: SiteName, count: int) -> list[tuple[int, float]]:
    """(blocks, seconds from grant to contribution) of a site's newest accepted contributions, oldest first."""
    query = (
        select(_contributions.blocks, _contributions.received_at - _leases.granted_at)
        .join(schema.leases, _leases.token == _contributions.token)
        .where(_contributions.site == site, _contributions.accepted)
        .order_by(_contributions.token.desc())
        .limit(count)
    )
    return [(blocks, spent / 1000) for blocks, spent in reversed(connection.execute(query).all())]


def newest_plan(connection: Connection) -> Plan | None:
    """The plan that was made last."""
    query = select(schema.plans.c.plan).order_by(schema.plans.c.seq.desc()).limit(1)
    found = connection.execute(query).scalar_one_or_none()
    return None if found is None else _PLAN.validate_python(json.loads(found))


def keep_plan(connection: Connection, plan: Plan) -> None:
    """Adds a plan to the record of plans."""
    # Not pydantic's own JSON: that turns an infinite finish into null.
    connection.execute(insert(schema.plans).values(made_at=plan.made_at, plan=json.dumps(asdict(plan))))
