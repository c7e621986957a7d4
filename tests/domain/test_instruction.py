"""Every branch of what a site is told, with its sentence."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstrain.domain.ids import Generation, Instant, SessionId, SiteName, Token
from crosstrain.domain.instruction import Instruction, Work, decide_ahead, decide_work
from crosstrain.domain.lease import GrantSize, Lease, LeaseState
from crosstrain.domain.verdict import Verdict

UNTIL = Instant(99)


@dataclass(frozen=True)
class View:
    """A `WorkView` of values."""

    current: Generation | None
    holds: Generation | None
    initialiser_elsewhere: bool
    must_evaluate: bool
    finished: Verdict
    start: Verdict
    room: Verdict
    closing: str | None
    contributed: bool
    resumable: int
    size: GrantSize | None
    drain: Verdict
    barrier: Verdict


READY = View(
    current=Generation(4),
    holds=Generation(4),
    initialiser_elsewhere=False,
    must_evaluate=False,
    finished=Verdict(False, "round 5 of 9"),
    start=Verdict(True, "the run has started"),
    room=Verdict(True, "there is room"),
    closing=None,
    contributed=False,
    resumable=0,
    size=GrantSize(6, "a full inner phase is 6 blocks"),
    drain=Verdict(False, "the round has time"),
    barrier=Verdict(False, "waiting for b to contribute", UNTIL),
)


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (READY, Instruction(Work.TRAIN, "a full inner phase is 6 blocks", blocks=6)),
        (
            replace(READY, current=None, holds=None),
            Instruction(Work.INITIALISE, "no generation exists yet: this site makes generation 0 from the run's seed"),
        ),
        (
            replace(READY, current=None, holds=None, initialiser_elsewhere=True),
            Instruction(Work.WAIT, "waiting for generation 0, which another site is making"),
        ),
        (
            replace(READY, finished=Verdict(True, "all 4 rounds are done")),
            Instruction(Work.FINISHED, "all 4 rounds are done"),
        ),
        (
            replace(READY, finished=Verdict(True, "all 4 rounds are done"), holds=None),
            Instruction(Work.FINISHED, "all 4 rounds are done"),
        ),
        (
            replace(READY, finished=Verdict(True, "all 4 rounds are done"), must_evaluate=True),
            Instruction(Work.EVALUATE, "generation 4 has no held-out measure yet"),
        ),
        (
            replace(READY, closing="all 2 leases are in", holds=Generation(3)),
            Instruction(Work.WAIT, "waiting for generation 5 to be merged: all 2 leases are in"),
        ),
        (
            replace(READY, contributed=True, holds=None),
            Instruction(Work.WAIT, "contributed; waiting for b to contribute", UNTIL),
        ),
        (
            replace(READY, resumable=3, holds=None),
            Instruction(Work.RESUME, "the 3 blocks of its saved phase are still available", blocks=3),
        ),
        (
            replace(READY, resumable=3, start=Verdict(False, "waiting for 2 sites", UNTIL)),
            Instruction(Work.WAIT, "waiting for 2 sites", UNTIL),
        ),
        (
            replace(READY, resumable=3, drain=Verdict(True, "near the cutoff", UNTIL)),
            Instruction(Work.WAIT, "the round is about to close; waiting for the next", UNTIL),
        ),
        (replace(READY, holds=None), Instruction(Work.ADOPT, "generation 4 is current")),
        (replace(READY, holds=Generation(3)), Instruction(Work.ADOPT, "generation 4 is current")),
        (
            replace(READY, must_evaluate=True),
            Instruction(Work.EVALUATE, "generation 4 has no held-out measure yet"),
        ),
        (
            replace(READY, start=Verdict(False, "waiting for 2 sites", UNTIL)),
            Instruction(Work.WAIT, "waiting for 2 sites", UNTIL),
        ),
        (
            replace(READY, room=Verdict(False, "waiting for space")),
            Instruction(Work.WAIT, "waiting for space"),
        ),
        (
            replace(READY, drain=Verdict(True, "near the cutoff", UNTIL)),
            Instruction(Work.WAIT, "the round is about to close; waiting for the next", UNTIL),
        ),
        (
            replace(READY, size=None),
            Instruction(
                Work.WAIT,
                "every block of the epoch is leased or contributed; waiting for b to contribute",
                UNTIL,
                starving=True,
            ),
        ),
    ],
)
def test_decide_work_every_branch_has_its_sentence(view: View, expected: Instruction) -> None:
    assert decide_work(view) == expected


@dataclass(frozen=True)
class Ahead:
    """An `AheadView` of values."""

    overlap: bool
    current: Generation | None
    rounds: int
    finished: Verdict
    predecessor: Lease | None
    size_ahead: GrantSize | None


LEASES = st.builds(
    Lease,
    st.just(Token(3)),
    st.just(SiteName("alpha")),
    st.just(SessionId(1)),
    st.integers(0, 4).map(Generation),
    st.just(0),
    st.integers(1, 9),
    st.just(Instant(0)),
    st.just(60_000),
    st.sampled_from(LeaseState),
)
AHEADS = st.builds(
    Ahead,
    st.booleans(),
    st.none() | st.integers(0, 4).map(Generation),
    st.integers(1, 6),
    st.booleans().map(lambda over: Verdict(over, "it is")),
    st.none() | LEASES,
    st.none() | st.integers(1, 9).map(lambda blocks: GrantSize(blocks, "a full phase")),
)


@given(AHEADS)
def test_only_work_that_may_still_count_in_the_open_round_is_followed_by_a_lease(view: Ahead) -> None:
    told = decide_ahead(view)
    before = view.predecessor
    counts = before is not None and before.state in (LeaseState.LIVE, LeaseState.CONTRIBUTED)
    open_round = before is not None and before.generation == view.current
    follows = before is not None and before.generation + 1 < view.rounds and not view.finished
    granted = view.overlap and counts and open_round and follows and view.size_ahead is not None
    assert told.work is (Work.TRAIN if granted else Work.WAIT)
    assert told.reason
    assert (told.blocks > 0) == granted
    assert told.starving == (view.overlap and counts and open_round and follows and view.size_ahead is None)
