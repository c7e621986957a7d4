"""A lease needs a heartbeat and progress: its deadline is the earlier of the two, to the millisecond."""

from __future__ import annotations

import pytest

from crosstrain.domain.ids import Instant, SessionId, SiteName, Token
from crosstrain.domain.site import Beat, Patience, Phase, Presence, deadline, time_to_live

PATIENCE = Patience(booting=900_000, other=60_000)
TTL = 10_000


def presence(phase: Phase = Phase.TRAINING, done: int = 3, seen: int = 1000, progressed: int = 1000) -> Presence:
    beat = Beat(phase, done)
    return Presence(SessionId(1), SiteName("a"), Instant(seen), Instant(progressed), beat, 4, "an answer")


@pytest.mark.parametrize(
    ("floor", "interval", "rtt", "expected"),
    [(30_000, 1000, 50, 30_000), (1000, 4000, 0, 10_000), (1000, 4000, 250, 10_500), (10_500, 4000, 250, 10_500)],
)
def test_ttl_is_the_floor_or_two_and_a_half_intervals_and_two_round_trips(
    floor: int, interval: float, rtt: float, expected: int
) -> None:
    assert time_to_live(floor, interval, rtt) == expected


def test_deadline_follows_the_heartbeat_while_there_is_progress() -> None:
    assert deadline(presence(seen=5000, progressed=5000), TTL, PATIENCE) == 15_000


def test_deadline_without_progress_ends_with_the_phases_patience() -> None:
    assert deadline(presence(seen=55_000), TTL, PATIENCE) == 61_000
    assert deadline(presence(Phase.BOOTING, seen=890_000), TTL, PATIENCE) == 900_000
    assert deadline(presence(Phase.BOOTING, seen=895_000), TTL, PATIENCE) == 901_000


def test_deadline_gives_progress_at_least_one_ttl() -> None:
    assert deadline(presence(seen=1000), TTL, Patience(1, 1)) == 11_000


@pytest.mark.parametrize(
    ("beat", "progressed"),
    [
        (Beat(Phase.TRAINING, 3, loss=1.0, detail="other text"), 1000),
        (Beat(Phase.TRAINING, 4), 7000),
        (Beat(Phase.TRAINING, 2), 7000),
        (Beat(Phase.UPLOADING, 3), 7000),
        (Beat(Phase.TRAINING, 3, token=Token(8)), 7000),
    ],
)
def test_presence_progress_is_a_change_of_phase_or_amount(beat: Beat, progressed: int) -> None:
    after = presence().after(beat, Instant(7000))
    assert (after.seen_at, after.progressed_at, after.beat) == (7000, progressed, beat)
    assert (after.asked_generation, after.answer) == (4, "an answer")


def test_verdict_is_true_or_false_by_itself() -> None:
    from crosstrain.domain.verdict import Verdict

    assert Verdict(True, "yes")
    assert not Verdict(False, "no")
