"""The fault script without processes: snapshots in, deeds out."""

from __future__ import annotations

import pytest
from tests.dashboard.statuses import AWAY, site, status

from crosstrain.demo.faults import (
    DOWN_S,
    LEAST_ROUNDS,
    Action,
    Deed,
    Script,
    Stage,
    State,
    advance,
    begin,
    script_for,
)
from crosstrain.demo.prepare import NAMES
from crosstrain.wire.messages import StatusReply

SCRIPT = script_for(NAMES[:3], 16)


def at(generation: int | None, victim_done: int = 10, **victim: object) -> StatusReply:
    """Alpha at the begin of its lease, beta somewhere in its own."""
    sites = (site("alpha", done=0), site("beta", done=victim_done, **victim))
    return status(generation=generation, sites=sites)


def deeds(actions: tuple[Action, ...]) -> list[tuple[Deed, str]]:
    return [(action.deed, action.site) for action in actions]


@pytest.mark.parametrize(
    ("sites", "victim", "late"),
    [(1, "alpha", None), (2, "beta", None), (3, "beta", "gamma"), (5, "beta", "gamma")],
)
def test_who_is_hit(sites: int, victim: str, late: str | None) -> None:
    script = script_for(NAMES[:sites], 16)
    assert (script.victim, script.late) == (victim, late)
    assert begin(script).stage is (Stage.LATE_SITE if late else Stage.KILL_SITE)


@pytest.mark.parametrize("rounds", range(LEAST_ROUNDS, 60))
def test_every_trigger_comes_in_order_and_before_the_end(rounds: int) -> None:
    script = script_for(NAMES[:3], rounds)
    assert 1 <= script.join_at < script.kill_at < script.hurry_at <= rounds - 3


def test_the_third_site_joins_at_its_generation() -> None:
    state = begin(SCRIPT)
    assert advance(SCRIPT, state, at(SCRIPT.join_at - 1), 1.0) == (state, ())
    state, actions = advance(SCRIPT, state, at(SCRIPT.join_at), 2.0)
    assert deeds(actions) == [(Deed.START_SITE, "gamma")]
    assert state == State(Stage.KILL_SITE, since=SCRIPT.join_at, at_s=2.0)


@pytest.mark.parametrize(("done", "killed"), [(0, False), (3, False), (4, True), (16, True), (17, False), (20, False)])
def test_a_site_is_killed_in_the_middle_of_its_lease(done: int, killed: bool) -> None:
    state, actions = advance(SCRIPT, State(Stage.KILL_SITE, since=2), at(SCRIPT.kill_at, done, ttl_expiries=2), 5.0)
    assert deeds(actions) == ([(Deed.KILL_SITE, "beta")] if killed else [])
    assert state.stage is (Stage.EXPIRY if killed else Stage.KILL_SITE)
    assert state.expiries == (2 if killed else 0)


@pytest.mark.parametrize(
    "reply",
    [
        at(SCRIPT.kill_at - 1),
        at(None),
        at(SCRIPT.kill_at, lease_blocks=None),
        at(SCRIPT.kill_at, phase="uploading"),
        status(generation=SCRIPT.kill_at, sites=(site("alpha"),)),
        None,
    ],
)
def test_a_site_without_a_lease_to_lose_is_spared(reply: StatusReply | None) -> None:
    state = State(Stage.KILL_SITE, since=2)
    assert advance(SCRIPT, state, reply, 5.0) == (state, ())


@pytest.mark.parametrize("generation", [SCRIPT.kill_at + 3, SCRIPT.hurry_at])
def test_the_middle_of_a_lease_is_not_waited_for_for_ever(generation: int) -> None:
    _, actions = advance(SCRIPT, State(Stage.KILL_SITE, since=SCRIPT.kill_at), at(generation, 20), 5.0)
    assert deeds(actions) == [(Deed.KILL_SITE, "beta")]


def test_the_killed_site_returns_only_after_its_lease_expired() -> None:
    state = State(Stage.EXPIRY, expiries=1, since=4)
    assert advance(SCRIPT, state, at(4, ttl_expiries=1), 6.0) == (state, ())
    state, actions = advance(SCRIPT, state, at(5, ttl_expiries=2, lease_blocks=None, merged_blocks=33), 12.0)
    assert deeds(actions) == [(Deed.START_SITE, "beta")]
    assert state == State(Stage.RETURN, merged=33, since=5, at_s=12.0)


def test_a_site_that_contributed_just_before_its_death_dies_once_more() -> None:
    state = State(Stage.EXPIRY, expiries=0, since=4)
    state, actions = advance(SCRIPT, state, at(5, lease_blocks=None, alive=False), 6.0)
    assert deeds(actions) == [(Deed.START_SITE, "beta")]
    assert state == State(Stage.KILL_SITE, since=5, at_s=6.0)


def test_a_killed_site_that_vanished_from_the_status_is_waited_for() -> None:
    state = State(Stage.EXPIRY)
    assert advance(SCRIPT, state, status(generation=5, sites=()), 6.0) == (state, ())


def test_the_coordinator_is_spared_until_the_killed_site_has_trained_again() -> None:
    state = State(Stage.RETURN, merged=30, since=5)
    assert advance(SCRIPT, state, at(6, merged_blocks=30), 20.0) == (state, ())
    following, actions = advance(SCRIPT, state, at(7, merged_blocks=40), 21.0)
    assert (following, actions) == (State(Stage.KILL_COORDINATOR, since=7, at_s=21.0), ())
    hurried, _ = advance(SCRIPT, state, at(SCRIPT.hurry_at, merged_blocks=30), 21.0)
    assert hurried.stage is Stage.KILL_COORDINATOR


@pytest.mark.parametrize(
    ("reply", "killed"),
    [
        (at(7, 10), True),
        (at(7, 1), False),
        (at(7, 10, phase="uploading"), False),
        (status(generation=7, sites=(AWAY,)), False),
        (at(10, 1), True),
        (at(SCRIPT.hurry_at, 1), True),
        (None, False),
        (status(generation=7, finished=True), False),
    ],
)
def test_the_coordinator_is_killed_in_the_middle_of_a_round(reply: StatusReply | None, killed: bool) -> None:
    state, actions = advance(SCRIPT, State(Stage.KILL_COORDINATOR, since=7), reply, 30.0)
    assert deeds(actions) == ([(Deed.KILL_COORDINATOR, "")] if killed else [])
    assert state.stage is (Stage.COORDINATOR_DOWN if killed else Stage.KILL_COORDINATOR)
    assert state.at_s == (30.0 if killed else 0.0)


@pytest.mark.parametrize("reply", [None, at(7)])
def test_the_coordinator_returns_after_a_while_seen_or_not(reply: StatusReply | None) -> None:
    state = State(Stage.COORDINATOR_DOWN, at_s=30.0)
    assert advance(SCRIPT, state, reply, 30.0 + DOWN_S / 2) == (state, ())
    state, actions = advance(SCRIPT, state, reply, 30.0 + DOWN_S)
    assert deeds(actions) == [(Deed.START_COORDINATOR, "")]
    assert advance(SCRIPT, state, at(9), 40.0) == (state, ())


@pytest.mark.parametrize("sites", [1, 3, 5])
def test_a_whole_play(sites: int) -> None:
    names = NAMES[:sites]
    script = script_for(names, 16)
    told = _play(script, begin(script))
    expected = [
        *([(Deed.START_SITE, "gamma")] if sites >= 3 else []),
        (Deed.KILL_SITE, script.victim),
        (Deed.START_SITE, script.victim),
        (Deed.KILL_COORDINATOR, ""),
        (Deed.START_COORDINATOR, ""),
    ]
    assert told == expected


def _play(script: Script, state: State) -> list[tuple[Deed, str]]:
    """A run in which every site trains whenever it lives, ten looks a round, and an expiry takes fifteen looks."""
    told: list[tuple[Deed, str]] = []
    killed_at: int | None = None
    expiries, down = 0, False
    for look in range(160):
        if killed_at is not None and look == killed_at + 15:
            expiries, killed_at = 1, None
        alive = killed_at is None
        merged = 10 * (look // 10)
        victim = site(script.victim, done=2 * (look % 10), ttl_expiries=expiries, merged_blocks=merged, alive=alive)
        reply = None if down else status(generation=look // 10, sites=(victim,))
        state, actions = advance(script, state, reply, look / 4)
        for deed, name in deeds(actions):
            told.append((deed, name))
            killed_at = look if deed is Deed.KILL_SITE else killed_at
            down = deed is Deed.KILL_COORDINATOR or (down and deed is not Deed.START_COORDINATOR)
    assert state.stage is Stage.OVER
    return told
