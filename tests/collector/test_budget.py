"""The probe budget: whatever is called when, and however clocks behave."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from crosstrain.collector.budget import (
    LONGEST_MS,
    Budget,
    Spent,
    look_ended,
    looked,
    may_look,
    next_probe,
    probe_ended,
    probed,
    settled,
)
from crosstrain.domain.ids import Instant

NAMES = ("a", "b", "c")
BUDGET = Budget(60.0, 600.0, 0.2)
steps = st.lists(
    st.tuples(st.integers(0, 2_000_000), st.booleans(), st.booleans(), st.floats(0, 0.999)), min_size=1, max_size=60
)


def call(
    spent: Spent, now: Instant, site_fails: bool, probe_fails: bool, draw: float
) -> tuple[Spent, str | None, bool]:
    """What `collect` does with its budget."""
    spent = settled(spent, now)
    if not may_look(spent, now):
        return spent, None, False
    spent = looked(spent, BUDGET, now, draw)
    name = None if site_fails else next_probe(spent, NAMES, now)
    if name is not None:
        spent = probed(spent, name, BUDGET, now, draw)
        spent = probe_ended(spent, name, BUDGET, probe_fails, draw)
    return look_ended(spent, BUDGET, site_fails, draw), name, True


@given(steps)
@settings(max_examples=300, deadline=None)
def test_looks_and_probes_are_never_closer_than_the_budget(calls: list[tuple[int, bool, bool, float]]) -> None:
    spent, now, looks = Spent(), Instant(1_000_000), list[int]()
    probes: dict[str, list[int]] = {name: [] for name in NAMES}
    for after, site_fails, probe_fails, draw in calls:
        now = Instant(now + after)
        spent, name, asked = call(spent, now, site_fails, probe_fails, draw)
        looks += [now] if asked else []
        if name is not None:
            probes[name].append(now)
    assert all(later - earlier >= 60_000 for earlier, later in itertools.pairwise(looks))
    for times in probes.values():
        assert all(later - earlier >= 600_000 for earlier, later in itertools.pairwise(times))


@given(steps, st.integers(-(10**10), 10**10))
@settings(max_examples=200, deadline=None)
def test_a_clock_that_jumps_neither_opens_nor_closes_the_budget(
    calls: list[tuple[int, bool, bool, float]], jump: int
) -> None:
    spent, now = Spent(), Instant(2 * 10**10)
    for after, site_fails, probe_fails, draw in calls:
        now = Instant(now + after)
        spent, _, _ = call(spent, now, site_fails, probe_fails, draw)
    back = Instant(now - abs(jump))
    assert not may_look(settled(spent, back), back) or (spent.look is not None and spent.look.due_at <= back)
    # At the latest after the longest back-off, asking goes on.
    later = Instant(back + round(1.2 * LONGEST_MS) + 1)
    assert may_look(settled(settled(spent, back), later), later)


def test_every_shape_has_its_turn_and_the_oldest_comes_first() -> None:
    spent, now, asked = Spent(), Instant(0), []
    for _ in range(6):
        spent, name, _ = call(spent, now, False, False, 0.0)
        asked.append(name)
        now = Instant(now + 200_000)
    assert asked == ["a", "b", "c", "a", "b", "c"]


def test_failures_put_off_and_success_forgets_them() -> None:
    spent, now, gaps = Spent(), Instant(0), []
    for _ in range(4):
        spent, _, _ = call(spent, now, True, False, 0.0)
        assert spent.look is not None
        gaps.append((spent.look.due_at - now) / 1000)
        now = spent.look.due_at
    assert gaps == [120, 240, 480, 960]
    spent, _, _ = call(spent, now, False, False, 0.0)
    now = Instant(now + 1_000_000)
    spent, _, _ = call(spent, now, False, False, 0.0)
    assert spent.look is not None
    assert spent.look.due_at - now == 60_000
