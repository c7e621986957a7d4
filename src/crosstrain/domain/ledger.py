"""The interval ledger: spans of positions of an epoch's order, each in one state.

At any time the spans of an epoch partition 0 .. M-1, and neighbours in the same ownerless state are one span, so that the
number of spans grows with the leases outstanding and not with M. A rule takes spans and returns a `Change`: which rows
go, which come, and the facts for the audit log. The store applies it in one transaction, each removal guarded by the
row's state and token, so that a stale decision fails as a whole instead of overwriting a newer one (G3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crosstrain.domain.block import TRANSITIONS, BlockState
from crosstrain.domain.events import EventKind
from crosstrain.domain.ids import Token


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Positions start <= p < stop of an epoch's order, all in one state.

    Attributes:
        token: the lease that holds them while `state.owned`, else None.
    """

    epoch: int
    start: int
    stop: int
    state: BlockState
    token: Token | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.stop:
            raise ValueError(f"a span needs 0 <= start < stop, found {self.start} .. {self.stop}")
        if self.state.owned != (self.token is not None):
            raise ValueError(f"a span in state {self.state} {'needs' if self.state.owned else 'cannot have'} a token")

    @property
    def blocks(self) -> int:
        return self.stop - self.start

    def part(self, start: int, stop: int, state: BlockState, token: Token | None) -> Span:
        return Span(self.epoch, start, stop, state, token)


@dataclass(frozen=True, slots=True)
class Fact:
    """One event of the blocks start .. stop-1."""

    kind: EventKind
    epoch: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Change:
    """Rows that go, rows that come, and what the audit log says about it."""

    removed: tuple[Span, ...]
    added: tuple[Span, ...]
    facts: tuple[Fact, ...]

    @property
    def blocks(self) -> int:
        return sum(fact.stop - fact.start for fact in self.facts)


def count_blocks(spans: Iterable[Span]) -> int:
    return sum(span.blocks for span in spans)


def grant(available: Sequence[Span], blocks: int, token: Token) -> Change:
    """Leases the first `blocks` available positions, in the order of training.

    Raises:
        ValueError: fewer than `blocks` are available in the spans given.
    """
    removed: list[Span] = []
    added: list[Span] = []
    facts: list[Fact] = []
    for span in sorted(available):
        if blocks == 0:
            break
        _require(span, EventKind.GRANTED)
        cut = min(span.stop, span.start + blocks)
        blocks -= cut - span.start
        removed.append(span)
        added.append(span.part(span.start, cut, BlockState.LEASED, token))
        facts.append(Fact(EventKind.GRANTED, span.epoch, span.start, cut))
        if cut < span.stop:
            added.append(span.part(cut, span.stop, BlockState.AVAILABLE, None))
    if blocks:
        raise ValueError(f"{blocks} blocks more were asked for than are available")
    return Change(tuple(removed), tuple(added), tuple(facts))


def grant_again(available: Sequence[Span], wanted: Sequence[tuple[int, int, int]], token: Token) -> Change:
    """Leases exactly the wanted (epoch, start, stop), in the order of training.

    Raises:
        ValueError: a wanted range is not inside one of the available spans.
    """
    added: list[Span] = []
    facts: list[Fact] = []
    left = sorted(wanted)
    for span in sorted(available):
        _require(span, EventKind.GRANTED)
        at = span.start
        for epoch, start, stop in [r for r in left if r[0] == span.epoch and at <= r[1] and r[2] <= span.stop]:
            left.remove((epoch, start, stop))
            if at < start:
                added.append(span.part(at, start, BlockState.AVAILABLE, None))
            added.append(span.part(start, stop, BlockState.LEASED, token))
            facts.append(Fact(EventKind.GRANTED, epoch, start, stop))
            at = stop
        if at < span.stop:
            added.append(span.part(at, span.stop, BlockState.AVAILABLE, None))
    if left:
        raise ValueError(f"{left} are not available")
    return Change(tuple(sorted(available)), tuple(added), tuple(facts))


def split(held: Sequence[Span], blocks: int) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """The first `blocks` blocks of a lease in the order of training, and the rest."""
    prefix: list[Span] = []
    rest: list[Span] = []
    for span in sorted(held):
        cut = min(span.stop, span.start + blocks)
        blocks -= cut - span.start
        if cut > span.start:
            prefix.append(span.part(span.start, cut, span.state, span.token))
        if cut < span.stop:
            rest.append(span.part(cut, span.stop, span.state, span.token))
    return tuple(prefix), tuple(rest)


def move(held: Sequence[Span], kind: EventKind, neighbours: Sequence[Span] = ()) -> Change:
    """Moves all spans of a lease along one arrow.

    Args:
        held: the lease's spans, all in the state that the arrow starts from.
        kind: which arrow.
        neighbours: spans in the arrow's target state that touch `held`; joined when that state has no owner.

    Raises:
        ValueError: a span is not in the state that the arrow starts from.
    """
    return settle(held, {kind: held}, neighbours)


def contribute(held: Sequence[Span], blocks: int, neighbours: Sequence[Span] = ()) -> Change:
    """Contributes the first `blocks` blocks of a lease and releases the rest."""
    prefix, rest = split(held, blocks)
    return settle(held, {EventKind.CONTRIBUTED: prefix, EventKind.RELEASED: rest}, neighbours)


def shed(held: Sequence[Span], kept: int, neighbours: Sequence[Span] = ()) -> Change:
    """Keeps the first `kept` blocks of a lease and makes the rest available."""
    prefix, rest = split(held, kept)
    return settle(held, {EventKind.SHED: rest}, neighbours, stay=prefix)


def settle(
    held: Sequence[Span],
    arrows: dict[EventKind, Sequence[Span]],
    neighbours: Sequence[Span] = (),
    stay: Sequence[Span] = (),
) -> Change:
    """Moves parts of `held` along several arrows at once; `arrows` and `stay` together must cover `held`."""
    owned: list[Span] = list(stay)
    free: list[Span] = []
    facts: list[Fact] = []
    for kind, spans in arrows.items():
        target = TRANSITIONS[kind][1]
        for span in sorted(spans):
            _require(span, kind)
            facts.append(Fact(kind, span.epoch, span.start, span.stop))
            moved = span.part(span.start, span.stop, target, span.token if target.owned else None)
            (owned if target.owned else free).append(moved)
    joined, absorbed = _coalesce(free, neighbours)
    return Change((*sorted(held), *absorbed), (*owned, *joined), tuple(facts))


def _require(span: Span, kind: EventKind) -> None:
    source = TRANSITIONS[kind][0]
    if span.state is not source:
        raise ValueError(f"{kind} starts from {source}, found positions {span.start} .. {span.stop} {span.state}")


def _coalesce(free: Sequence[Span], neighbours: Sequence[Span]) -> tuple[list[Span], list[Span]]:
    """Joins ownerless spans that touch; returns the joined spans and the neighbours that went into them."""
    marked = sorted([(span, False) for span in free] + [(span, True) for span in neighbours])
    groups: list[list[tuple[Span, bool]]] = []
    for span, is_neighbour in marked:
        last = groups[-1][-1][0] if groups else None
        if last and (last.epoch, last.stop, last.state) == (span.epoch, span.start, span.state):
            groups[-1].append((span, is_neighbour))
        else:
            groups.append([(span, is_neighbour)])
    joined: list[Span] = []
    absorbed: list[Span] = []
    for group in groups:
        if all(is_neighbour for _, is_neighbour in group):
            continue
        absorbed += [span for span, is_neighbour in group if is_neighbour]
        first, last = group[0][0], group[-1][0]
        joined.append(first.part(first.start, last.stop, first.state, None))
    return joined, absorbed


def open_epoch(epoch: int, blocks: int) -> Change:
    """A new epoch: one span, all available."""
    return Change((), (Span(epoch, 0, blocks, BlockState.AVAILABLE),), ())


def partition_problem(spans: Iterable[Span], blocks: int) -> str | None:
    """Why the spans of one epoch do not partition 0 .. blocks-1, or None if they do."""
    expected = 0
    for span in sorted(spans):
        if span.start < expected:
            return f"epoch {span.epoch}: positions {span.start} .. {min(span.stop, expected)} are in two states"
        if span.start > expected:
            return f"epoch {span.epoch}: positions {expected} .. {span.start} are in no state"
        expected = span.stop
    if expected > blocks:
        return f"positions {blocks} .. {expected} are beyond the last block"
    return None if expected == blocks else f"positions {expected} .. {blocks} are in no state"
