"""The run's own row, its rounds, generations, evaluations and the audit log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, RowMapping, bindparam, insert, select, update

from crosstrain.domain.events import EventKind
from crosstrain.domain.generation import GenerationRecord
from crosstrain.domain.ids import Digest, Generation, Instant, SessionId, SiteName, Token
from crosstrain.domain.ledger import Change
from crosstrain.storage import schema
from crosstrain.storage.prepared import Prepared, Row

_rounds = schema.rounds.c
_generations = schema.generations.c
_events = schema.events.c

_LOAD = Prepared(select(schema.run))
_PROGRESS = Prepared(select(schema.run.c.epoch, schema.run.c.finished_at, schema.run.c.finished_reason))
_NEWEST_ROUND = Prepared(select(schema.rounds).order_by(_rounds.generation.desc()).limit(1))
_NEWEST_GENERATION = Prepared(select(schema.generations).order_by(_generations.number.desc()).limit(1))
_GENERATIONS = Prepared(select(schema.generations).order_by(_generations.number))
_EVALUATION = Prepared(select(schema.evaluations).where(schema.evaluations.c.generation == bindparam("generation")))
_LOG = Prepared(
    insert(schema.events)
    .values({column.name: bindparam(column.name) for column in _events if column is not _events.seq})
    .inline()
)
_EVENTS = Prepared(select(schema.events).where(_events.seq > bindparam("after")).order_by(_events.seq))


def load(connection: Connection) -> Row | None:
    """The run's row, None in a new database."""
    return _LOAD.first(connection)


def progress(connection: Connection) -> Row:
    """Of the run's row what changes: `epoch`, `finished_at`, `finished_reason`."""
    row = _PROGRESS.first(connection)
    assert row is not None
    return row


def create(
    connection: Connection, name: str, spec: Mapping[str, Any], digest: str, corpus: Mapping[str, Any], now: Instant
) -> None:
    connection.execute(
        insert(schema.run).values(
            id=1,
            schema_version=schema.SCHEMA_VERSION,
            name=name,
            spec=json.dumps(spec, sort_keys=True),
            spec_digest=digest,
            corpus=json.dumps(corpus, sort_keys=True),
            term=0,
            beat=0,
            next_token=1,
            next_session=1,
            epoch=0,
            created_at=now,
        )
    )


def set_epoch(connection: Connection, epoch: int) -> None:
    connection.execute(update(schema.run).values(epoch=epoch))


def finish(connection: Connection, reason: str, now: Instant) -> None:
    connection.execute(update(schema.run).values(finished_at=now, finished_reason=reason))


def open_round(connection: Connection, generation: Generation, now: Instant) -> None:
    connection.execute(insert(schema.rounds).values(generation=generation, opened_at=now))


def newest_round(connection: Connection) -> Row | None:
    return _NEWEST_ROUND.first(connection)


def close_round(connection: Connection, generation: Generation, reason: str, now: Instant) -> None:
    """Freezes the round's contributions; from here on only its merge can follow."""
    connection.execute(
        update(schema.rounds).where(_rounds.generation == generation).values(closing_at=now, reason=reason)
    )


def reopen_round(connection: Connection, generation: Generation) -> None:
    """Undoes `close_round`: nothing is left to merge."""
    connection.execute(
        update(schema.rounds).where(_rounds.generation == generation).values(closing_at=None, reason=None)
    )


def round_published(connection: Connection, generation: Generation, now: Instant) -> None:
    connection.execute(update(schema.rounds).where(_rounds.generation == generation).values(published_at=now))


def published_rounds(connection: Connection, limit: int) -> Sequence[RowMapping]:
    """The newest rounds whose generation was published, newest first."""
    query = select(schema.rounds).where(_rounds.published_at.is_not(None)).order_by(_rounds.generation.desc())
    return connection.execute(query.limit(limit)).mappings().all()


def add_generation(connection: Connection, record: GenerationRecord) -> None:
    connection.execute(insert(schema.generations).values(**asdict(record)))


def newest_generation(connection: Connection) -> GenerationRecord | None:
    row = _NEWEST_GENERATION.first(connection)
    return None if row is None else _record(row)


def generations(connection: Connection) -> tuple[GenerationRecord, ...]:
    return tuple(_record(row) for row in _GENERATIONS.all(connection))


def add_evaluation(
    connection: Connection, generation: Generation, site: SiteName, loss: float, tokens: int, now: Instant
) -> None:
    connection.execute(
        insert(schema.evaluations).values(generation=generation, site=site, loss=loss, tokens=tokens, at=now)
    )


def evaluation(connection: Connection, generation: Generation) -> Row | None:
    return _EVALUATION.first(connection, generation=generation)


def evaluations(connection: Connection) -> Sequence[RowMapping]:
    query = select(schema.evaluations).order_by(schema.evaluations.c.generation)
    return connection.execute(query).mappings().all()


def log(
    connection: Connection,
    kind: EventKind,
    text: str,
    now: Instant,
    *,
    site: SiteName | None = None,
    session: SessionId | None = None,
    generation: Generation | None = None,
) -> None:
    """One fact about the run or a site."""
    _LOG.execute(connection, at=now, kind=kind.value, text=text, site=site, session=session, generation=generation)


def log_change(
    connection: Connection,
    change: Change,
    token: Token,
    site: SiteName,
    session: SessionId,
    generation: Generation,
    text: str,
    now: Instant,
) -> None:
    """One fact per span of a change to a lease's blocks."""
    for fact in change.facts:
        _LOG.execute(
            connection,
            at=now,
            kind=fact.kind.value,
            site=site,
            session=session,
            token=token,
            generation=generation,
            epoch=fact.epoch,
            start=fact.start,
            stop=fact.stop,
            text=text,
        )


def events(connection: Connection, after: int = 0) -> Sequence[Row]:
    """The audit log in order, from the first row after `after`."""
    return _EVENTS.all(connection, after=after)


def recent_events(connection: Connection, limit: int) -> Sequence[RowMapping]:
    """The newest rows, oldest first."""
    query = select(schema.events).order_by(_events.seq.desc()).limit(limit)
    return connection.execute(query).mappings().all()[::-1]


def _record(row: Row) -> GenerationRecord:
    return GenerationRecord(
        Generation(row["number"]),
        None if row["parent"] is None else Generation(row["parent"]),
        Digest(row["weights"]),
        Digest(row["master"]),
        None if row["momentum"] is None else Digest(row["momentum"]),
        row["global_step"],
        row["tokens"],
        row["eta"],
        row["beta"],
        row["contributions"],
        Instant(row["published_at"]),
        None if row["packed"] is None else Digest(row["packed"]),
    )
