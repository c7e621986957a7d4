"""What jobs usually wait, whatever the queue is today."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.placement.queues import HOUR, NOW, certain, demand, option, site
from tests.placement.waiting import DAY_S, EMPTY, HOUR_S, LARGE, SMALL, at, submit_and_start

from crosstrain.placement.choose import choose_shapes
from crosstrain.placement.predict import FEWEST_WAITS
from crosstrain.placement.shape import Shape
from crosstrain.placement.usual import FADES_S, share_of_today, usual_wait


def test_a_handful_of_waits_makes_a_usual_one_and_fewer_none() -> None:
    known = EMPTY
    for day in range(FEWEST_WAITS):
        now = at(day * DAY_S)
        assert usual_wait(known, SMALL, now) is None
        known = submit_and_start(known, SMALL, day * DAY_S, None, (2 + day) * HOUR_S)
    found = usual_wait(known, SMALL, at(FEWEST_WAITS * DAY_S))
    assert found is not None and found.point_s == 4 * HOUR_S and found.outcomes == FEWEST_WAITS
    assert list(found.waits_s) == sorted(found.waits_s)
    assert usual_wait(known, LARGE, at(FEWEST_WAITS * DAY_S)) is None


def test_what_today_tells_fades() -> None:
    assert share_of_today(0.0) == 1.0
    assert share_of_today(FADES_S) == pytest.approx(0.3679, abs=1e-4)
    assert share_of_today(20 * FADES_S) < 1e-8


@pytest.mark.parametrize(("work_h", "nodes"), [(4.0, 2), (200.0, 8)])
def test_a_queue_that_is_long_today_is_no_reason_against_a_shape_for_weeks(work_h: float, nodes: int) -> None:
    """The large shape waits two days if it is submitted now, and an hour on most days."""
    small = replace(option(certain(0.0), nodes=2), usual=certain(0.0))
    large = replace(option(certain(48 * HOUR), nodes=8), usual=certain(HOUR))
    work = demand(800.0 * work_h * HOUR)
    chosen = choose_shapes(work, [site("one", small, large, max_depth=0)], NOW)
    assert [shape.nodes for shape in chosen.values()] == [nodes]
    # By today's queue alone the small shape would be taken whatever the work is.
    blind = choose_shapes(work, [site("one", replace(small, usual=None), replace(large, usual=None), max_depth=0)], NOW)
    assert blind == {site("one").name: Shape("gpu", 2, 4, round(8 * HOUR))}
