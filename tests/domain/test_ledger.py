"""The interval ledger against a dict with one entry per block: the same answers, far fewer rows."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from crosstrain.domain.block import TRANSITIONS, BlockState
from crosstrain.domain.events import EventKind
from crosstrain.domain.ids import Token
from crosstrain.domain.ledger import (
    Change,
    Span,
    contribute,
    count_blocks,
    grant,
    grant_again,
    move,
    open_epoch,
    partition_problem,
    settle,
    shed,
    split,
)

BLOCKS = 40


class Rows:
    """Spans under the guard of the store: a change whose removals are not there is refused."""

    def __init__(self, blocks: int = BLOCKS) -> None:
        self.blocks = blocks
        self.spans: set[Span] = set()
        self.apply(open_epoch(0, blocks))

    def apply(self, change: Change) -> None:
        assert set(change.removed) <= self.spans
        self.spans -= set(change.removed)
        self.spans |= set(change.added)
        assert partition_problem(self.spans, self.blocks) is None

    def of(self, state: BlockState, token: Token | None = None) -> list[Span]:
        return [span for span in self.spans if span.state is state and (token is None or span.token == token)]

    def touching(self, held: list[Span], state: BlockState) -> list[Span]:
        edges = {edge for span in held for edge in (span.start, span.stop)}
        return [span for span in self.of(state) if {span.start, span.stop} & edges]

    def grant(self, blocks: int, token: Token) -> Change:
        change = grant(self.of(BlockState.AVAILABLE), blocks, token)
        self.apply(change)
        return change

    def move(self, token: Token, kind: EventKind) -> Change:
        source, target = TRANSITIONS[kind]
        held = self.of(source, token)
        change = move(held, kind, self.touching(held, target))
        self.apply(change)
        return change

    def contribute(self, token: Token, blocks: int) -> Change:
        held = self.of(BlockState.LEASED, token)
        change = contribute(held, blocks, self.touching(held, BlockState.AVAILABLE))
        self.apply(change)
        return change


class LedgerMachine(RuleBasedStateMachine):
    leased = Bundle("leased")
    contributed = Bundle("contributed")

    def __init__(self) -> None:
        super().__init__()
        self.rows = Rows()
        self.model: dict[int, tuple[BlockState, Token | None]] = dict.fromkeys(
            range(BLOCKS), (BlockState.AVAILABLE, None)
        )
        self.next_token = 1

    def held(self, token: Token) -> list[int]:
        return [position for position, (_, holder) in self.model.items() if holder == token]

    def follow(self, change: Change, token: Token) -> None:
        """Applies the facts that the audit log would get to the model; every arrow must be legal there."""
        for fact in change.facts:
            source, target = TRANSITIONS[fact.kind]
            for position in range(fact.start, fact.stop):
                state, holder = self.model[position]
                assert state is source
                assert holder == (token if source.owned else None)
                self.model[position] = (target, token if target.owned else None)

    @rule(target=leased, blocks=st.integers(1, 12))
    def lease(self, blocks: int) -> Token:
        free = [position for position, (state, _) in self.model.items() if state is BlockState.AVAILABLE]
        if len(free) < blocks:
            with pytest.raises(ValueError, match="more were asked for than are available"):
                grant(self.rows.of(BlockState.AVAILABLE), blocks, Token(self.next_token))
            return multiple()
        token = Token(self.next_token)
        self.next_token += 1
        self.follow(self.rows.grant(blocks, token), token)
        assert self.held(token) == free[:blocks]
        return token

    @rule(target=leased, first=st.integers(0, BLOCKS - 1), length=st.integers(1, 6), gap=st.integers(0, 4))
    def lease_again(self, first: int, length: int, gap: int) -> Token:
        """Two ranges that a saved phase had, if they are available."""
        second = first + length + gap
        wanted = [(0, start, start + length) for start in (first, second) if start + length <= BLOCKS]
        positions = [position for _, start, stop in wanted for position in range(start, stop)]
        inside = [
            span
            for span in self.rows.of(BlockState.AVAILABLE)
            if any(span.start <= start and stop <= span.stop for _, start, stop in wanted)
        ]
        if not wanted or any(self.model[position][0] is not BlockState.AVAILABLE for position in positions):
            if wanted:
                with pytest.raises(ValueError, match="are not available"):
                    grant_again(inside, wanted, Token(self.next_token))
            return multiple()
        token = Token(self.next_token)
        self.next_token += 1
        change = grant_again(inside, wanted, token)
        self.rows.apply(change)
        self.follow(change, token)
        assert self.held(token) == positions
        return token

    @rule(token=leased, data=st.data())
    def shed_a_tail(self, token: Token, data: st.DataObject) -> None:
        held = self.held(token)
        kept = data.draw(st.integers(1, len(held)))
        spans = self.rows.of(BlockState.LEASED, token)
        tail = split(spans, kept)[1]
        change = shed(spans, kept, self.rows.touching(list(tail), BlockState.AVAILABLE))
        self.rows.apply(change)
        self.follow(change, token)
        assert self.held(token) == held[:kept]

    @rule(token=consumes(leased), kind=st.sampled_from([EventKind.EXPIRED, EventKind.RELEASED, EventKind.REFUSED]))
    def give_back(self, token: Token, kind: EventKind) -> None:
        self.follow(self.rows.move(token, kind), token)
        assert self.held(token) == []

    @rule(target=contributed, token=consumes(leased), data=st.data())
    def contribute(self, token: Token, data: st.DataObject) -> Token:
        held = self.held(token)
        blocks = data.draw(st.integers(1, len(held)))
        self.follow(self.rows.contribute(token, blocks), token)
        assert self.held(token) == held[:blocks]
        return token

    @rule(token=consumes(contributed), kind=st.sampled_from([EventKind.MERGED, EventKind.MERGED, EventKind.DROPPED]))
    def end(self, token: Token, kind: EventKind) -> None:
        self.follow(self.rows.move(token, kind), token)

    @rule(token=leased, kind=st.sampled_from([EventKind.MERGED, EventKind.DROPPED, EventKind.GRANTED]))
    def illegal_arrow_from_leased(self, token: Token, kind: EventKind) -> None:
        with pytest.raises(ValueError, match="starts from"):
            move(self.rows.of(BlockState.LEASED, token), kind)

    @rule(token=contributed, kind=st.sampled_from([EventKind.EXPIRED, EventKind.CONTRIBUTED, EventKind.RELEASED]))
    def illegal_arrow_from_contributed(self, token: Token, kind: EventKind) -> None:
        with pytest.raises(ValueError, match="starts from"):
            move(self.rows.of(BlockState.CONTRIBUTED, token), kind)

    @invariant()
    def rows_tell_what_the_model_tells(self) -> None:
        told = {p: (span.state, span.token) for span in self.rows.spans for p in range(span.start, span.stop)}
        assert told == self.model

    @invariant()
    def ownerless_neighbours_are_one_span(self) -> None:
        for left, right in pairwise(sorted(self.rows.spans)):
            assert left.state is not right.state or left.state.owned


LedgerMachine.TestCase.settings = settings(stateful_step_count=30)
test_ledger_any_history_equals_a_dict_of_blocks = LedgerMachine.TestCase


def test_ledger_long_churn_keeps_few_spans() -> None:
    rows, dice, token, most = Rows(blocks=20_000), random.Random(5), 0, 0
    for _ in range(400):
        tokens = []
        for _ in range(3):
            token += 1
            rows.grant(dice.randint(1, 12), Token(token))
            tokens.append(Token(token))
        dice.shuffle(tokens)
        contributed = []
        for each in tokens:
            if dice.random() < 0.2:
                rows.move(each, EventKind.EXPIRED)
            else:
                held = count_blocks(rows.of(BlockState.LEASED, each))
                rows.contribute(each, dice.randint(1, held))
                contributed.append(each)
        most = max(most, len(rows.spans))
        for each in contributed:
            rows.move(each, EventKind.MERGED)
    # Three leases a round leave at most a few holes, whatever the number of rounds before.
    assert most < 30


def test_grant_takes_the_first_positions_of_several_spans() -> None:
    free = [Span(0, 7, 9, BlockState.AVAILABLE), Span(0, 0, 2, BlockState.AVAILABLE)]
    change = grant(free, 3, Token(4))
    assert [(span.start, span.stop, span.state) for span in change.added] == [
        (0, 2, BlockState.LEASED),
        (7, 8, BlockState.LEASED),
        (8, 9, BlockState.AVAILABLE),
    ]
    assert change.blocks == 3
    assert set(change.removed) == set(free)


def test_grant_of_blocks_that_are_not_available_is_illegal() -> None:
    with pytest.raises(ValueError, match="granted starts from available"):
        grant([Span(0, 0, 3, BlockState.MERGED)], 1, Token(1))


def test_split_divides_at_a_block_in_the_middle_of_a_span() -> None:
    held = [Span(0, 6, 9, BlockState.LEASED, Token(1)), Span(0, 0, 2, BlockState.LEASED, Token(1))]
    prefix, rest = split(held, 3)
    assert [(span.start, span.stop) for span in prefix] == [(0, 2), (6, 7)]
    assert [(span.start, span.stop) for span in rest] == [(7, 9)]


@pytest.mark.parametrize(("start", "stop"), [(3, 3), (4, 3), (-1, 2)])
def test_span_empty_or_negative_is_refused(start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="0 <= start < stop"):
        Span(0, start, stop, BlockState.AVAILABLE)


@pytest.mark.parametrize("state", list(BlockState))
def test_span_has_a_token_exactly_while_it_is_owned(state: BlockState) -> None:
    with pytest.raises(ValueError, match="token"):
        Span(0, 0, 1, state, None if state.owned else Token(1))


def test_settle_joins_only_spans_that_touch_what_is_freed() -> None:
    held = [Span(0, 4, 8, BlockState.LEASED, Token(1))]
    before, after = Span(0, 0, 4, BlockState.AVAILABLE), Span(0, 8, 9, BlockState.AVAILABLE)
    prefix, rest = split(held, 2)
    change = settle(held, {EventKind.CONTRIBUTED: prefix, EventKind.RELEASED: rest}, [before, after])
    assert before not in change.removed
    assert Span(0, 6, 9, BlockState.AVAILABLE) in change.added


@pytest.mark.parametrize(
    ("spans", "problem"),
    [
        ([(0, 4), (4, 9)], None),
        ([(0, 4), (3, 9)], "in two states"),
        ([(0, 4), (5, 9)], "in no state"),
        ([(0, 4)], "4 .. 9 are in no state"),
        ([], "0 .. 9 are in no state"),
        ([(0, 10)], "9 .. 10 are beyond the last block"),
    ],
)
def test_partition_problem_names_gaps_and_overlaps(spans: list[tuple[int, int]], problem: str | None) -> None:
    found = partition_problem([Span(0, start, stop, BlockState.AVAILABLE) for start, stop in spans], 9)
    assert (found is None) if problem is None else (found is not None and problem in found)


@pytest.mark.parametrize("kind", [kind for kind in EventKind if kind in TRANSITIONS])
def test_transitions_every_arrow_starts_only_from_its_source(kind: EventKind) -> None:
    source, target = TRANSITIONS[kind]
    for state in BlockState:
        span = Span(0, 0, 2, state, Token(1) if state.owned else None)
        if state is source and kind is not EventKind.GRANTED:
            (added,) = move([span], kind).added
            assert added.state is target
        elif state is not source:
            with pytest.raises(ValueError, match="starts from"):
                move([span], kind)


def test_transitions_are_the_arrows_of_the_guarantee_and_no_others() -> None:
    arrows = {(source.value, target.value) for source, target in TRANSITIONS.values()}
    assert arrows == {
        ("available", "leased"),
        ("leased", "available"),
        ("leased", "contributed"),
        ("contributed", "merged"),
        ("contributed", "available"),
    }
    assert {kind.value for kind in EventKind} - {kind.value for kind in TRANSITIONS} == {
        "coordinator-started",
        "session-opened",
        "session-ended",
        "round-closed",
        "published",
        "evaluated",
        "epoch-opened",
        "finished",
    }
