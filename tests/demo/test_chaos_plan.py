"""The plan of faults: a function of its seed that leaves every process time to live."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstrain.demo.chaos.plan import OF_THE_COORDINATOR, STOPS, Kind, Tempo, draw_plan
from crosstrain.demo.chaos.prepare import Wishes, check
from crosstrain.demo.chaos.report import story
from crosstrain.demo.prepare import NAMES
from crosstrain.demo.processes import COORDINATOR
from crosstrain.errors import UsageError

TEMPO = Tempo(ttl=4.0, boot=3.0, gap=1.5)
SITES = NAMES[:3]


@given(st.integers(0, 10**6), st.integers(1, 8), st.floats(10, 600))
def test_faults_of_one_process_are_apart_and_over_before_the_end(seed: int, sites: int, seconds: float) -> None:
    plan = draw_plan(seed, NAMES[:sites], seconds, TEMPO)
    assert plan == draw_plan(seed, NAMES[:sites], seconds, TEMPO)
    assert list(plan) == sorted(plan, key=lambda fault: fault.at_s)
    assert all(TEMPO.boot <= fault.at_s <= fault.ends_s < seconds for fault in plan)
    for name in (*NAMES[:sites], COORDINATOR):
        own = [fault for fault in plan if fault.target == name]
        assert all(later.at_s >= earlier.ends_s + TEMPO.boot - 0.1 for earlier, later in pairwise(own))
    assert all((fault.target == COORDINATOR) == (fault.kind in OF_THE_COORDINATOR) for fault in plan)
    assert all(fault.seconds > TEMPO.ttl for fault in plan if fault.kind in STOPS)


def test_seeds_differ_and_draw_everything() -> None:
    plans = [draw_plan(seed, SITES, 120.0, TEMPO) for seed in range(20)]
    assert len(set(plans)) == 20
    assert {fault.kind for plan in plans for fault in plan} == set(Kind)
    assert {fault.target for plan in plans for fault in plan} == {*SITES, COORDINATOR}
    assert min(map(len, plans)) > 20


def test_the_story_names_every_fault_with_its_time() -> None:
    wishes = Wishes(minutes=1.0, seed=3, engine="counting")
    head, *lines = story(wishes)
    assert head.startswith(f"seed 3: {len(wishes.plan)} faults in 60 s")
    assert [float(line.split()[0]) for line in lines] == [fault.at_s for fault in wishes.plan]
    assert all(line.endswith(fault.sentence) for line, fault in zip(lines, wishes.plan, strict=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [({"minutes": 0.01}, "--minutes must be at least 0.1"), ({"sites": 9}, "--sites must be 1 to 8")],
)
def test_wishes_out_of_range_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(dataclasses.replace(Wishes(engine="counting"), **change))  # type: ignore[arg-type]
