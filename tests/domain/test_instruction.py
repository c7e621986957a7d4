"""Every branch of what a site is told, with its sentence."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from crosstrain.domain.ids import Generation, Instant
from crosstrain.domain.instruction import Instruction, Work, decide_work
from crosstrain.domain.lease import GrantSize
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
