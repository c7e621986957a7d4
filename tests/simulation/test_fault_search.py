"""The simulation itself: seeds hold, runs are functions of their seed, violations are told as short stories."""

from __future__ import annotations

import pytest
from tests.simulation.plants import PLANTS

from crosstrain.simulation.fault_run import run_schedule
from crosstrain.simulation.fault_search import search, tell
from crosstrain.simulation.faults import Fault, FaultKind, draw_schedule

HOURS = 0.25


def test_a_hundred_seeds_keep_every_guarantee() -> None:
    findings = search(0, 100, HOURS, 2, lambda _done, _broken: None)
    assert [story.lines for story in findings.stories] == []
    assert findings.seeds == 100
    assert findings.faults > 200
    assert findings.generations > 400


@pytest.mark.parametrize("seed", [3, 7, 30])
def test_the_same_seed_has_the_same_outcome(seed: int) -> None:
    assert run_schedule(draw_schedule(seed, HOURS)) == run_schedule(draw_schedule(seed, HOURS))


def test_schedules_of_many_seeds_hold_every_kind_of_fault() -> None:
    kinds = {fault.kind for seed in range(100) for fault in draw_schedule(seed, HOURS).faults}
    assert kinds == set(FaultKind)


def test_every_kind_of_fault_has_a_sentence() -> None:
    for kind in FaultKind:
        assert Fault(1.5, kind, 0, 20.0, 3).sentence(("alpha",)).startswith("    1.5 s  ")


def test_a_violation_becomes_a_short_story_with_the_command_that_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plant, guarantees, seed = PLANTS["a prefix counts as the whole lease"]
    plant(monkeypatch)
    schedule, violation = draw_schedule(seed, HOURS), None
    while violation is None:
        violation = run_schedule(schedule).violation
        if violation is None:
            schedule = draw_schedule(schedule.seed + 1, HOURS)
    story = tell(schedule, HOURS, violation)
    assert len(story.lines) - 2 <= len(schedule.faults)
    assert story.violation.guarantee in guarantees
    assert f"--seed {schedule.seed} --seeds 1" in story.command
    assert story.lines[-1].startswith(f"then {story.violation.guarantee} is broken: ")
