"""The planner: members, shapes, depth, accumulation, names of jobs, and that it does not fidget."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.placement.queues import HOUR, NOW, certain, demand, option, site, spread

from crosstrain.domain.ids import Instant
from crosstrain.placement.choose import make_plan
from crosstrain.placement.offer import Job, JobState, SiteOffer
from crosstrain.placement.plan import Plan, Role, SitePlan, number_of
from crosstrain.placement.shape import Shape

TOKENS = 400.0 * 30 * HOUR
"""30 hours of one 4-node job."""


def only(plan: Plan) -> SitePlan:
    (entry,) = plan.sites
    return entry


def test_one_site_with_one_shape_is_simply_submitted() -> None:
    entry = only(make_plan("run", demand(TOKENS), [site("lumi", option(certain(HOUR)))], NOW))
    assert entry.role is Role.MEMBER and entry.shape == Shape("gpu", 4, 4, 8 * 3600)
    assert entry.depth == 1 and [item.name for item in entry.submit] == ["run.lumi.1"]
    assert entry.tokens == pytest.approx(TOKENS, rel=0.01)
    assert "the only one" in entry.shape_reason


def test_without_any_site_there_is_a_plan_that_says_so() -> None:
    plan = make_plan("run", demand(TOKENS), [], NOW)
    assert plan.sites == () and not isfinite(plan.finish.quantile(0.5)) and "crosstrain collect" in plan.reason


def test_a_site_without_a_possible_shape_is_out_with_its_reason_and_the_rest_is_planned() -> None:
    plan = make_plan("run", demand(TOKENS), [site("a", option(certain(0.0))), site("b", note="award used up")], NOW)
    out = plan.of("b")
    assert out is not None and out.role is Role.OUT and "award used up" in out.reason and out.submit == ()
    assert isfinite(plan.finish.quantile(0.9))


def test_a_site_that_certainly_comes_too_late_is_out_and_one_that_may_come_is_a_reserve() -> None:
    sites = [
        site("near", option(certain(0.0), nodes=40)),
        site("far", option(certain(100 * HOUR))),
        site("maybe", option(spread(6 * HOUR, 50.0))),
    ]
    plan = make_plan("run", demand(TOKENS), sites, NOW)
    assert [entry.role for entry in plan.sites] == [Role.MEMBER, Role.OUT, Role.RESERVE]
    assert "luckiest tenth" in plan.sites[1].reason and plan.sites[1].submit == ()
    assert plan.sites[2].submit and "costs nothing" in plan.sites[2].reason


def test_the_short_shape_wins_when_only_it_starts_soon() -> None:
    where = site("a", option(certain(40 * HOUR), hours=24.0), option(certain(HOUR), hours=4.0))
    entry = only(make_plan("run", demand(TOKENS), [where], NOW))
    assert entry.shape is not None and entry.shape.walltime_s == 4 * 3600
    assert entry.alternatives[0].later_s > HOUR and "later" in entry.shape_reason


def test_the_large_shape_wins_when_the_run_is_long() -> None:
    where = site("a", option(certain(HOUR), nodes=2, hours=4.0), option(certain(40 * HOUR), nodes=16, hours=24.0))
    assert only(make_plan("run", demand(TOKENS / 20), [where], NOW)).shape == where.options[0].shape
    assert only(make_plan("run", demand(TOKENS * 50), [where], NOW)).shape == where.options[1].shape


def test_depth_grows_with_the_wait_and_stops_at_the_limit() -> None:
    depths = [
        only(
            make_plan(
                "run", demand(20 * TOKENS), [site("a", option(certain(wait * HOUR)), max_depth=4, max_queued=9)], NOW
            )
        ).depth
        for wait in (0, 4, 12, 30)
    ]
    assert depths == [0, 1, 2, 4]
    limited = site("a", option(certain(30 * HOUR)), max_depth=4, max_queued=2)
    entry = only(make_plan("run", demand(20 * TOKENS), [limited], NOW))
    assert entry.depth == 1 and "as its limits allow" in entry.depth_reason


def test_jobs_that_are_there_are_kept_and_counted() -> None:
    shape = Shape("gpu", 4, 4, 8 * 3600)
    jobs = (
        Job("run.a.7", shape, JobState.RUNNING, Instant(NOW - 3_600_000)),
        Job("run.a.8", shape, JobState.PENDING, Instant(NOW - 1000), certain(3 * HOUR)),
    )
    where = site("a", option(certain(3 * HOUR)), jobs=jobs, last_number=8)
    entry = only(make_plan("run", demand(20 * TOKENS), [where], NOW))
    assert entry.keep == ("run.a.7", "run.a.8") and entry.submit == ()
    alone = replace(where, jobs=jobs[:1])
    entry = only(make_plan("run", demand(20 * TOKENS), [alone], NOW))
    assert [item.name for item in entry.submit] == ["run.a.9"]


def test_the_combined_batch_is_split_by_speed() -> None:
    sites = [site("slow", option(certain(0.0), speed=100.0)), site("fast", option(certain(0.0), speed=300.0))]
    plan = make_plan("run", demand(TOKENS, windows_per_step=128), sites, NOW)
    assert [entry.accumulation for entry in plan.sites] == [4, 12]
    assert "96 of 128 windows" in plan.sites[1].accumulation_reason


def test_an_exchange_makes_the_run_longer() -> None:
    where = [site("a", option(certain(0.0), hours=100.0))]
    plain = make_plan("run", demand(TOKENS), where, NOW).finish.quantile(0.5)
    slowed = make_plan("run", demand(TOKENS, exchange_s=25.0), where, NOW).finish.quantile(0.5)
    assert slowed == pytest.approx(2 * plain, rel=0.01)  # a round trains for 25 s


def test_a_better_forecast_must_be_clearly_better_to_change_a_shape() -> None:
    first = site("a", option(certain(3.0 * HOUR), hours=8.0), option(certain(3.5 * HOUR), hours=8.5))
    plan = make_plan("run", demand(TOKENS), [first], NOW)
    assert only(plan).shape == first.options[0].shape
    slightly = site("a", option(certain(3.4 * HOUR), hours=8.0), option(certain(3.0 * HOUR), hours=8.5))
    again = make_plan("run", demand(TOKENS), [slightly], NOW, plan)
    assert only(again).shape == first.options[0].shape and "kept from the plan before" in only(again).shape_reason
    clearly = site("a", option(certain(60.0 * HOUR), hours=8.0), option(certain(3.0 * HOUR), hours=8.5))
    assert only(make_plan("run", demand(TOKENS), [clearly], NOW, plan)).shape == first.options[1].shape


OPTIONS = st.builds(
    lambda median, nodes, hours: option(spread(median), nodes, hours),
    st.floats(60.0, 60 * HOUR),
    st.integers(1, 64),
    st.sampled_from([1.0, 4.0, 12.0, 48.0]),
)
SITES = st.lists(
    st.builds(
        lambda options, depth, queued, hours: (options, depth, queued, hours),
        st.lists(OPTIONS, max_size=3),
        st.integers(0, 3),
        st.integers(1, 5),
        st.sampled_from([50.0, 5000.0, float("inf")]),
    ),
    max_size=3,
).map(
    lambda drawn: [
        site(f"s{i}", *options, max_depth=depth, max_queued=queued, node_hours_left=hours)
        for i, (options, depth, queued, hours) in enumerate(drawn)
    ]
)


@settings(max_examples=40, deadline=None)
@given(SITES, st.floats(1e3, 1e10))
def test_any_problem_has_a_plan_within_the_limits_that_does_not_fidget(sites: list[SiteOffer], tokens: float) -> None:
    plan = make_plan("run", demand(tokens, 5.0, 64), sites, NOW)
    assert [entry.site for entry in plan.sites] == [each.name for each in sites]
    for entry, where in zip(plan.sites, sites, strict=True):
        assert entry.reason and len(entry.submit) + len(entry.keep) <= where.max_queued
        assert entry.node_hours <= where.node_hours_left * (1 + 1e-9)
        numbers = [number_of(item.name, "run", where.name) for item in entry.submit]
        assert numbers == list(range(1, len(numbers) + 1))
        assert (entry.shape is None) == (entry.role is Role.OUT)
    assert make_plan("run", demand(tokens, 5.0, 64), sites, NOW, plan).sites == tuple(
        replace(entry) for entry in plan.sites
    )
