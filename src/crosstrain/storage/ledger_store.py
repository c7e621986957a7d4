"""Rows of the interval ledger. Values in, values out; every removal is guarded by the row's state and token (G3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, and_, bindparam, delete, func, insert, or_, select

from crosstrain.domain.block import BlockState
from crosstrain.domain.ids import Token
from crosstrain.domain.ledger import Change, Span
from crosstrain.errors import IntegrityError
from crosstrain.storage import schema

_spans = schema.spans.c
_blocks = func.sum(_spans.stop - _spans.start)
_columns = (_spans.epoch, _spans.start, _spans.stop, _spans.state, _spans.token)


# Built once: making a statement costs SQLAlchemy as much as running it, and these run for every request.
_COUNTS = select(_spans.state, _blocks).group_by(_spans.state)
_COUNTS_OF_EPOCH = _COUNTS.where(_spans.epoch == bindparam("epoch"))
_HELD = select(*_columns).where(_spans.token == bindparam("token")).order_by(_spans.epoch, _spans.start)


def available(connection: Connection, epoch: int, blocks: int) -> tuple[Span, ...]:
    """The first available spans of an epoch that together hold at least `blocks` blocks, or all there are."""
    found: list[Span] = []
    rows = connection.execute(
        select(*_columns)
        .where(_spans.epoch == epoch, _spans.state == BlockState.AVAILABLE.value)
        .order_by(_spans.start)
        .execution_options(yield_per=64)
    )
    for row in rows:
        if blocks <= 0:
            break
        found.append(_span(row))
        blocks -= found[-1].blocks
    rows.close()
    return tuple(found)


def held(connection: Connection, token: Token) -> tuple[Span, ...]:
    """The spans of a lease, in the order of training."""
    rows = connection.execute(_HELD, {"token": token})
    return tuple(_span(row) for row in rows)


def neighbours(connection: Connection, spans: Sequence[Span], state: BlockState) -> tuple[Span, ...]:
    """Spans in an ownerless state that touch the given ones."""
    touching = [
        and_(_spans.epoch == span.epoch, or_(_spans.stop == span.start, _spans.start == span.stop)) for span in spans
    ]
    if not touching:
        return ()
    rows = connection.execute(select(*_columns).where(_spans.state == state.value, or_(*touching)))
    return tuple(_span(row) for row in rows)


def apply(connection: Connection, change: Change) -> None:
    """Replaces the rows of a change.

    Raises:
        IntegrityError: a row that the decision was based on is not as it was; the transaction must be given up.
    """
    for span in change.removed:
        gone = connection.execute(
            delete(schema.spans).where(
                _spans.epoch == span.epoch,
                _spans.start == span.start,
                _spans.stop == span.stop,
                _spans.state == span.state.value,
                _spans.token.is_(None) if span.token is None else _spans.token == span.token,
            )
        )
        if gone.rowcount != 1:
            raise IntegrityError(
                f"The ledger row {span} is not there any more.",
                "this is a bug: the write was given up, nothing was lost",
            )
    if change.added:
        connection.execute(
            insert(schema.spans),
            [
                {"epoch": s.epoch, "start": s.start, "stop": s.stop, "state": s.state.value, "token": s.token}
                for s in change.added
            ],
        )


def are_available(connection: Connection, wanted: Sequence[tuple[int, int, int]]) -> tuple[Span, ...]:
    """The available rows that hold all the given (epoch, start, stop), or none if any block is not available."""
    found: set[Span] = set()
    for epoch, start, stop in wanted:
        rows = connection.execute(
            select(*_columns).where(
                _spans.epoch == epoch,
                _spans.state == BlockState.AVAILABLE.value,
                _spans.start <= start,
                _spans.stop >= stop,
            )
        )
        spans = [_span(row) for row in rows]
        if not spans:
            return ()
        found.update(spans)
    return tuple(sorted(found))


def counts(connection: Connection, epoch: int | None = None) -> dict[BlockState, int]:
    """Blocks per state, of one epoch or of all."""
    rows = connection.execute(_COUNTS) if epoch is None else connection.execute(_COUNTS_OF_EPOCH, {"epoch": epoch})
    found = {BlockState(state): int(blocks) for state, blocks in rows}
    return {state: found.get(state, 0) for state in BlockState}


def all_spans(connection: Connection) -> tuple[Span, ...]:
    """Every row, for audits."""
    return tuple(_span(row) for row in connection.execute(select(*_columns).order_by(_spans.epoch, _spans.start)))


def spans_of(connection: Connection, tokens: Iterable[Token]) -> dict[Token, tuple[Span, ...]]:
    """The spans of several leases."""
    result: dict[Token, list[Span]] = {token: [] for token in tokens}
    if result:
        rows = connection.execute(
            select(*_columns).where(_spans.token.in_(result)).order_by(_spans.epoch, _spans.start)
        )
        for row in rows:
            span = _span(row)
            assert span.token is not None
            result[span.token].append(span)
    return {token: tuple(spans) for token, spans in result.items()}


def _span(row: tuple[int, int, int, str, int | None] | object) -> Span:
    epoch, start, stop, state, token = row  # type: ignore[misc]
    return Span(epoch, start, stop, BlockState(state), None if token is None else Token(token))
