"""The stores keep what they are given: one suite over every database."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from tests.databases import Backend
from tests.fakes import NOON, sqlite_file

from crosstrain.domain.block import BlockState
from crosstrain.domain.contribution import Contribution, Judgement
from crosstrain.domain.events import EventKind
from crosstrain.domain.generation import GenerationRecord
from crosstrain.domain.ids import Digest, Generation, Instant, SessionId, SiteName, Token
from crosstrain.domain.lease import Lease, LeaseState
from crosstrain.domain.ledger import Span, contribute, grant, move, open_epoch, partition_problem
from crosstrain.errors import IntegrityError
from crosstrain.storage import lease_store, ledger_store, run_store, site_store
from crosstrain.storage.asking import asking
from crosstrain.storage.database import Database

NOW = Instant(NOON)
ALPHA, BETA = SiteName("alpha"), SiteName("beta")
BLOCKS = 30


@pytest.fixture
def database(new_backend: Callable[[], Backend]) -> Database:
    opened = new_backend().open()
    with opened.write() as connection:
        run_store.create(connection, "run", {"b": 1, "a": [1]}, "0" * 64, {"windows": 9}, NOW)
    return opened


def lease(token: int = 1, site: SiteName = ALPHA, session: int = 1, generation: int = 0) -> Lease:
    return Lease(Token(token), site, SessionId(session), Generation(generation), 12, 5, NOW, 10_000)


def claim(token: int = 1, generation: int = 0) -> Contribution:
    return Contribution(Token(token), Generation(generation), 5, 10, 80, 5, Digest("d" * 64), "10:" + "0" * 32, 2.5)


YES, NO = Judgement(True, "accepted", "fits"), Judgement(False, "norm", "too large")


def test_run_row_starts_at_term_zero_and_first_numbers(database: Database) -> None:
    with database.read() as connection:
        run = run_store.load(connection)
    assert run is not None
    assert run["spec"] == '{"a": [1], "b": 1}'
    assert (run["term"], run["next_token"], run["next_session"], run["epoch"]) == (0, 1, 1, 0)


def test_token_is_never_given_twice(database: Database) -> None:
    for token in (1, 2):
        with database.write() as connection:
            lease_store.draw(connection, Token(token))
    for token in (1, 2, 4):
        with pytest.raises(IntegrityError, match=f"Token {token} is not the next one"), database.write() as connection:
            lease_store.draw(connection, Token(token))


def test_session_newer_one_ends_the_older_of_its_site_only(database: Database) -> None:
    with database.write() as connection:
        first = site_store.open_session(connection, ALPHA, 2, 8, "fresh", "1", NOW)
        other = site_store.open_session(connection, BETA, 1, 4, "fresh", "1", NOW)
        second = site_store.open_session(connection, ALPHA, 4, 16, "restored", "1", NOW)
    with database.read() as connection:
        rows = {number: site_store.session(connection, number) for number in (first, other, second)}
        sites = site_store.sites(connection)
        assert [row["id"] for row in site_store.open_sessions(connection)] == [other, second]
        assert site_store.session(connection, SessionId(99)) is None
    assert first < other < second
    assert rows[first] is not None and rows[first]["end_reason"] == f"superseded by session {second}"
    assert [(row["name"], row["ranks"], row["entries"]) for row in sites] == [("alpha", 4, 2), ("beta", 1, 1)]


def test_session_ended_twice_keeps_its_first_reason(database: Database) -> None:
    with database.write() as connection:
        session = site_store.open_session(connection, ALPHA, 2, 8, "fresh", "1", NOW)
        site_store.end_session(connection, session, "walltime", NOW)
        site_store.end_session(connection, session, "again", Instant(NOW + 5))
        row = site_store.session(connection, session)
    assert row is not None
    assert (row["ended_at"], row["end_reason"]) == (NOW, "walltime")


def test_site_rate_is_a_moving_average_of_its_phases(database: Database) -> None:
    with database.write() as connection:
        site_store.open_session(connection, ALPHA, 2, 8, "fresh", "1", NOW)
        site_store.observe_phase(connection, ALPHA, 4.0, 100.0)
        site_store.observe_phase(connection, ALPHA, 2.0, 120.0)
        site_store.observe_rtt(connection, ALPHA, 33.0)
        site_store.add_totals(connection, ALPHA, grants=1, granted_blocks=5)
        site_store.add_totals(connection, ALPHA, grants=1, granted_blocks=7)
        row = site_store.find(connection, ALPHA)
    assert row is not None
    assert (row["rate"], row["progress_ms"], row["rtt_ms"]) == (3.0, 120.0, 33.0)
    assert (row["grants"], row["granted_blocks"], row["lost_blocks"]) == (2, 12, 0)


def test_lease_comes_back_as_it_was_and_ends_once(database: Database) -> None:
    with database.write() as connection:
        lease_store.add(connection, lease(), "a full phase")
        lease_store.add(connection, lease(2, BETA, 2), "a full phase")
        assert lease_store.find(connection, Token(1)) == lease()
        assert lease_store.find(connection, Token(9)) is None
        assert lease_store.live_of_session(connection, SessionId(2)) == (lease(2, BETA, 2),)
        lease_store.end(connection, lease(), LeaseState.EXPIRED, "silence", NOW)
        assert lease_store.in_state(connection, LeaseState.LIVE) == (lease(2, BETA, 2),)
        assert lease_store.live_of_site(connection, ALPHA) == ()
        assert lease_store.live_of_session(connection, SessionId(1)) == ()
    with pytest.raises(IntegrityError, match="not live any more"), database.write() as connection:
        lease_store.end(connection, lease(), LeaseState.RELEASED, "late", NOW)


def test_lease_handed_over_can_no_longer_be_ended_for_its_old_session(database: Database) -> None:
    with database.write() as connection:
        lease_store.add(connection, lease(), "a full phase")
        lease_store.hand_over(connection, lease(), SessionId(8))
        assert lease_store.find(connection, Token(1)) == replace(lease(), session=SessionId(8))
    with pytest.raises(IntegrityError), database.write() as connection:
        lease_store.end(connection, lease(), LeaseState.RELEASED, "by a zombie", NOW)


def test_round_begins_with_the_first_lease_that_counts(database: Database) -> None:
    early, late = lease(1), replace(lease(2, BETA, 2), granted_at=Instant(NOW + 500))
    with database.write() as connection:
        assert lease_store.round_begun(connection, Generation(0)) is None
        for each in (early, late):
            lease_store.add(connection, each, "")
        assert lease_store.round_begun(connection, Generation(0)) == NOW
        lease_store.end(connection, early, LeaseState.EXPIRED, "silence", NOW)
        assert lease_store.round_begun(connection, Generation(0)) == NOW + 500
        lease_store.end(connection, late, LeaseState.CONTRIBUTED, "in", NOW)
        assert lease_store.round_begun(connection, Generation(0)) == NOW + 500
        assert lease_store.round_begun(connection, Generation(1)) is None


def test_asking_takes_as_many_steps_after_a_thousand_leases_that_were_given_back(fast_tmp: Path) -> None:
    def steps() -> int:
        counted = []
        driver = connection.connection.driver_connection
        driver.set_progress_handler(lambda: counted.append(1), 1)
        found = asking(connection, session)
        driver.set_progress_handler(None, 0)
        assert found is not None and found.lease is not None and found.begun_at == NOW
        return len(counted)

    with sqlite_file(fast_tmp / "run.sqlite") as database, database.write() as connection:
        run_store.create(connection, "run", {}, "0" * 64, {}, NOW)
        session = site_store.open_session(connection, ALPHA, 1, 1, "fresh", "1", NOW)
        digest = Digest("a" * 64)
        run_store.add_generation(
            connection, GenerationRecord(Generation(0), None, digest, digest, None, 0, 0, None, None, 0, NOW)
        )
        lease_store.add(connection, lease(10_000, session=session), "")
        before = steps()
        for token in range(1, 1001):
            given_back = lease(token, session=session)
            lease_store.add(connection, given_back, "")
            lease_store.end(connection, given_back, LeaseState.RELEASED, "", NOW)
        assert steps() < before + 10


def test_contribution_comes_back_as_claimed_in_the_order_of_tokens(database: Database) -> None:
    with database.write() as connection:
        for token, judgement in ((3, YES), (1, YES), (2, NO)):
            lease_store.add_contribution(connection, claim(token), lease(token), judgement, float(token), NOW)
        accepted = lease_store.accepted(connection, Generation(0))
        everything = lease_store.all_contributions(connection)
        refused = lease_store.contribution(connection, Token(2))
        norms = lease_store.recent_norms(connection, 1)
        assert lease_store.contribution(connection, Token(9)) is None
        assert lease_store.accepted(connection, Generation(1)) == ()
    assert [row["token"] for row in accepted] == [1, 3]
    assert [lease_store.claim_of(row) for row in everything] == [claim(1), claim(2), claim(3)]
    assert refused is not None
    assert (refused["accepted"], refused["kind"], refused["reason"]) == (False, "norm", "too large")
    assert norms == (3.0,)


def test_contribution_second_of_a_lease_is_impossible(database: Database) -> None:
    with database.write() as connection:
        lease_store.add_contribution(connection, claim(), lease(), YES, 1.0, NOW)
    with pytest.raises(Exception, match=r"(?i)unique"), database.write() as connection:
        lease_store.add_contribution(connection, claim(), lease(), YES, 1.0, NOW)


def test_round_and_generation_come_back_as_they_were(database: Database) -> None:
    digest = Digest("a" * 64)
    first = GenerationRecord(Generation(0), None, digest, digest, None, 0, 0, None, None, 0, NOW)
    second = GenerationRecord(Generation(1), Generation(0), digest, digest, digest, 9, 72, 0.7, 0.9, 2, NOW)
    with database.write() as connection:
        assert run_store.newest_generation(connection) is None
        for record in (first, second):
            run_store.add_generation(connection, record)
        run_store.open_round(connection, Generation(0), NOW)
        run_store.close_round(connection, Generation(0), "its only lease is in", NOW)
        run_store.round_published(connection, Generation(0), NOW)
        run_store.open_round(connection, Generation(1), NOW)
        assert run_store.generations(connection) == (first, second)
        assert run_store.newest_generation(connection) == second
        newest = run_store.newest_round(connection)
    assert newest is not None
    assert (newest["generation"], newest["closing_at"]) == (1, None)


def test_events_are_read_in_order_from_anywhere(database: Database) -> None:
    with database.write() as connection:
        for number in range(5):
            run_store.log(connection, EventKind.PUBLISHED, str(number), NOW)
        assert [row["text"] for row in run_store.events(connection, after=2)] == ["2", "3", "4"]
        assert [row["text"] for row in run_store.recent_events(connection, 2)] == ["3", "4"]


def test_evaluation_is_kept_once_per_generation(database: Database) -> None:
    with database.write() as connection:
        run_store.add_evaluation(connection, Generation(2), ALPHA, 3.25, 40, NOW)
        row = run_store.evaluation(connection, Generation(2))
        assert run_store.evaluation(connection, Generation(3)) is None
        assert len(run_store.evaluations(connection)) == 1
    assert row is not None
    assert (row["site"], row["tokens"]) == ("alpha", 40)
    assert math.isclose(row["loss"], 3.25)


class StoreMachine(RuleBasedStateMachine):
    """The ledger's rows against a dict of blocks; every transaction that fails leaves nothing."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.database = database
        self.next_token = 1
        self.model: dict[int, tuple[BlockState, int | None]] = dict.fromkeys(
            range(BLOCKS), (BlockState.AVAILABLE, None)
        )
        with self.database.write() as connection:
            ledger_store.apply(connection, open_epoch(0, BLOCKS))
            ledger_store.apply(connection, open_epoch(1, BLOCKS))
        self.stale: tuple[Span, ...] = ()

    def teardown(self) -> None:
        self.database.close()

    def owners(self, state: BlockState) -> list[int]:
        return sorted({holder for found, holder in self.model.values() if found is state and holder is not None})

    def held(self, token: int) -> list[int]:
        return [position for position, (_, holder) in self.model.items() if holder == token]

    def set(self, positions: list[int], state: BlockState, token: int | None = None) -> None:
        self.model.update(dict.fromkeys(positions, (state, token)))

    @rule(blocks=st.integers(1, 9))
    def lease(self, blocks: int) -> None:
        free = [position for position, (state, _) in self.model.items() if state is BlockState.AVAILABLE]
        with self.database.write() as connection:
            found = ledger_store.available(connection, 0, blocks)
            if len(free) >= blocks:
                self.stale = found
                ledger_store.apply(connection, grant(found, blocks, Token(self.next_token)))
                self.set(free[:blocks], BlockState.LEASED, self.next_token)
                self.next_token += 1
            else:
                assert sum(span.blocks for span in found) == len(free)

    @precondition(lambda self: self.owners(BlockState.LEASED))
    @rule(data=st.data(), kept=st.integers(0, 9))
    def contribute_or_release(self, data: st.DataObject, kept: int) -> None:
        token = data.draw(st.sampled_from(self.owners(BlockState.LEASED)))
        positions = self.held(token)
        kept = min(kept, len(positions))
        with self.database.write() as connection:
            held = ledger_store.held(connection, Token(token))
            near = ledger_store.neighbours(connection, held, BlockState.AVAILABLE)
            change = contribute(held, kept, near) if kept else move(held, EventKind.EXPIRED, near)
            ledger_store.apply(connection, change)
        self.set(positions[:kept], BlockState.CONTRIBUTED, token)
        self.set(positions[kept:], BlockState.AVAILABLE)

    @precondition(lambda self: self.owners(BlockState.CONTRIBUTED))
    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(self.owners(BlockState.CONTRIBUTED)))
        positions = self.held(token)
        with self.database.write() as connection:
            held = ledger_store.held(connection, Token(token))
            near = ledger_store.neighbours(connection, held, BlockState.MERGED)
            ledger_store.apply(connection, move(held, EventKind.MERGED, near))
        self.set(positions, BlockState.MERGED)

    @precondition(lambda self: self.stale)
    @rule()
    def replay_of_a_stale_decision_leaves_nothing(self) -> None:
        with self.database.read() as connection:
            before = ledger_store.all_spans(connection)
        if set(self.stale) <= set(before):
            return
        with pytest.raises(IntegrityError), self.database.write() as connection:
            ledger_store.apply(connection, grant(self.stale, 1, Token(self.next_token)))
        with self.database.read() as connection:
            assert ledger_store.all_spans(connection) == before

    @invariant()
    def rows_tell_what_the_model_tells(self) -> None:
        with self.database.read() as connection:
            spans = [span for span in ledger_store.all_spans(connection) if span.epoch == 0]
            counts = ledger_store.counts(connection, 0)
            tokens = [Token(number) for number in range(1, self.next_token)]
            by_token = ledger_store.spans_of(connection, tokens)
            assert by_token == {token: ledger_store.held(connection, token) for token in tokens}
        assert partition_problem(spans, BLOCKS) is None
        assert {p: (s.state, s.token) for s in spans for p in range(s.start, s.stop)} == self.model
        assert counts == {state: sum(found is state for found, _ in self.model.values()) for state in BlockState}


def test_ledger_store_any_history_equals_a_dict_of_blocks(new_backend: Callable[[], Backend]) -> None:
    examples = settings(stateful_step_count=20, max_examples=8)
    run_state_machine_as_test(lambda: StoreMachine(new_backend().open()), settings=examples)
