"""Rows of the interval ledger. Values in, values out; every removal is guarded by the row's state and token (G3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Integer, bindparam, delete, func, insert, select, update

from crosstrain.domain.block import BlockState
from crosstrain.domain.ids import Token
from crosstrain.domain.ledger import Change, Span, count_blocks
from crosstrain.errors import IntegrityError
from crosstrain.storage import schema
from crosstrain.storage.prepared import Prepared

_spans = schema.spans.c
_blocks = func.sum(_spans.stop - _spans.start)
_columns = (_spans.epoch, _spans.start, _spans.stop, _spans.state, _spans.token)

_COUNTS = select(_spans.state, _blocks).group_by(_spans.state)
_COUNTS_OF_EPOCH = Prepared(_COUNTS.where(_spans.epoch == bindparam("epoch")))
_COUNTS_OF_ALL = Prepared(_COUNTS)
_IN_STATE = (_spans.epoch == bindparam("epoch"), _spans.state == bindparam("state"))
_BLOCKS_IN_STATE = Prepared(select(_blocks).where(*_IN_STATE))
_AVAILABLE = Prepared(
    select(*_columns)
    .where(*_IN_STATE, _spans.start >= bindparam("first"))
    .order_by(_spans.start)
    .limit(bindparam("limit", type_=Integer))
)
_ALL = Prepared(select(*_columns).order_by(_spans.epoch, _spans.start))
_HELD = Prepared(select(*_columns).where(_spans.token == bindparam("token")).order_by(_spans.epoch, _spans.start))
_UP_TO = Prepared(
    select(*_columns)
    .where(_spans.epoch == bindparam("epoch"), _spans.start <= bindparam("block"))
    .order_by(_spans.start.desc())
    .limit(bindparam("limit", type_=Integer))
)
"""Rows cover an epoch without a gap, so the one that holds a block is the last that begins at or before it."""
_AS_IT_WAS = [_spans[name] == bindparam(f"{name}_was") for name in ("epoch", "start", "stop", "state")]
_FREE, _OWNED = _spans.token.is_(None), _spans.token == bindparam("token_was")
_REMOVE_FREE, _REMOVE_OWNED = (Prepared(delete(schema.spans).where(*_AS_IT_WAS, owner)) for owner in (_FREE, _OWNED))
_REPLACE = update(schema.spans).values({name: bindparam(name) for name in ("stop", "state", "token")})
_REPLACE_FREE, _REPLACE_OWNED = (Prepared(_REPLACE.where(*_AS_IT_WAS, owner)) for owner in (_FREE, _OWNED))
_ADD = Prepared(insert(schema.spans).inline())

PAGE = 16
"""Available spans read at a time; nearly always the first is enough."""


@dataclass(frozen=True, slots=True)
class FirstFree:
    """The first available spans of an epoch.

    Attributes:
        whole: whether they are all there are.
    """

    spans: tuple[Span, ...]
    whole: bool

    @property
    def blocks(self) -> int:
        return count_blocks(self.spans)


def first_free(connection: Connection, epoch: int) -> FirstFree:
    """A page of available spans: nearly always enough to size a grant and to make it."""
    state = BlockState.AVAILABLE.value
    rows = _AVAILABLE.tuples(connection, epoch=epoch, state=state, first=0, limit=PAGE)
    return FirstFree(tuple(_span(row) for row in rows), len(rows) < PAGE)


def available(connection: Connection, epoch: int, blocks: int) -> tuple[Span, ...]:
    """The first available spans of an epoch that together hold at least `blocks` blocks, or all there are."""
    found: list[Span] = []
    first, state = 0, BlockState.AVAILABLE.value
    while blocks > 0:
        rows = _AVAILABLE.tuples(connection, epoch=epoch, state=state, first=first, limit=PAGE)
        for row in rows:
            if blocks > 0:
                found.append(_span(row))
                blocks -= found[-1].blocks
        if len(rows) < PAGE:
            break
        first = rows[-1][2]
    return tuple(found)


def held(connection: Connection, token: Token) -> tuple[Span, ...]:
    """The spans of a lease, in the order of training."""
    return tuple(_span(row) for row in _HELD.tuples(connection, token=token))


def neighbours(connection: Connection, spans: Sequence[Span], state: BlockState) -> tuple[Span, ...]:
    """Spans in an ownerless state that touch the given ones, each of which is a row or a part of one."""
    found: dict[Span, None] = {}
    for span in spans:
        # At most the row behind, the row that `span` is of, and the row before.
        rows = _UP_TO.tuples(connection, epoch=span.epoch, block=span.stop, limit=3)
        near = (_span(row) for row in rows)
        found.update((n, None) for n in near if n.state is state and (n.start == span.stop or n.stop == span.start))
    return tuple(found)


def apply(connection: Connection, change: Change) -> None:
    """Replaces the rows of a change; one that begins where an old one did takes its place.

    Raises:
        IntegrityError: a row that the decision was based on is not as it was; the transaction must be given up.
    """
    added = {(span.epoch, span.start): span for span in change.added}
    for span in change.removed:
        if _replace(connection, span, added.pop((span.epoch, span.start), None)) != 1:
            raise IntegrityError(
                f"The ledger row {span} is not there any more.",
                "this is a bug: the write was given up, nothing was lost",
            )
    for span in added.values():
        _ADD.execute(
            connection, epoch=span.epoch, start=span.start, stop=span.stop, state=span.state.value, token=span.token
        )


def _replace(connection: Connection, old: Span, new: Span | None) -> int:
    """Puts `new` where `old` was, or nothing; the number of rows that were as `old` says."""
    was = {
        "epoch_was": old.epoch,
        "start_was": old.start,
        "stop_was": old.stop,
        "state_was": old.state.value,
    }
    if old.token is not None:
        was["token_was"] = old.token
    if new is None:
        return (_REMOVE_FREE if old.token is None else _REMOVE_OWNED).execute(connection, **was)
    replace = _REPLACE_FREE if old.token is None else _REPLACE_OWNED
    return replace.execute(connection, **was, stop=new.stop, state=new.state.value, token=new.token)


def are_available(connection: Connection, wanted: Sequence[tuple[int, int, int]]) -> tuple[Span, ...]:
    """The available rows that hold all the given (epoch, start, stop), or none if any block is not available."""
    found: set[Span] = set()
    for epoch, start, stop in wanted:
        rows = _UP_TO.tuples(connection, epoch=epoch, block=start, limit=1)
        holder = _span(rows[0]) if rows else None
        if holder is None or holder.state is not BlockState.AVAILABLE or holder.stop < stop:
            return ()
        found.add(holder)
    return tuple(sorted(found))


def counts(connection: Connection, epoch: int | None = None) -> dict[BlockState, int]:
    """Blocks per state, of one epoch or of all."""
    rows = _COUNTS_OF_ALL.tuples(connection) if epoch is None else _COUNTS_OF_EPOCH.tuples(connection, epoch=epoch)
    found = {BlockState(state): int(blocks) for state, blocks in rows}
    return {state: found.get(state, 0) for state in BlockState}


def blocks_in(connection: Connection, epoch: int, state: BlockState) -> int:
    """Blocks of an epoch in one state."""
    return int(_BLOCKS_IN_STATE.scalar(connection, epoch=epoch, state=state.value) or 0)


def all_spans(connection: Connection) -> tuple[Span, ...]:
    """Every row, for audits."""
    return tuple(_span(row) for row in _ALL.tuples(connection))


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
