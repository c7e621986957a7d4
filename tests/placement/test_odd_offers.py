"""Offers and runs that nobody expects: nothing left to train, jobs that train nothing, names and queues without measure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.placement.queues import HOUR, NOW, certain, demand, option, site

from crosstrain.domain.ids import Instant, SiteName
from crosstrain.placement.choose import make_plan
from crosstrain.placement.offer import Job, JobState
from crosstrain.placement.plan import Role, number_of
from crosstrain.placement.shape import Shape
from crosstrain.placement.site_queue import QueueJob, QueueReport, QueueState, absorb, new_queue

SHAPE = Shape("gpu", 4, 4, 8 * 3600)
PENDING = Job("run.a.1", SHAPE, JobState.PENDING, Instant(NOW - 60_000))


def test_a_run_that_is_done_submits_nothing_says_why_and_keeps_what_is_there() -> None:
    sites = [site("a", option(certain(0.0)), jobs=(PENDING,), last_number=1), site("b", option(certain(HOUR)))]
    plan = make_plan("run", demand(0.0), sites, NOW)
    assert [(entry.role, entry.submit, entry.keep) for entry in plan.sites] == [
        (Role.OUT, (), ("run.a.1",)),
        (Role.OUT, (), ()),
    ]
    assert "nothing is left to train" in plan.reason and plan.finish.quantile(0.9) == 0.0
    assert all("nothing is left" in entry.reason for entry in plan.sites)


def test_a_site_whose_jobs_would_train_nothing_is_out_with_its_reason() -> None:
    still = replace(option(certain(0.0)), tokens_per_s=0.0)
    plan = make_plan("run", demand(1e6), [site("a", still, jobs=(PENDING,)), site("b", option(certain(0.0)))], NOW)
    assert (plan.sites[0].role, plan.sites[0].submit, plan.sites[0].keep) == (Role.OUT, (), ("run.a.1",))
    assert "0 tokens/s" in plan.sites[0].reason and plan.sites[1].role is Role.MEMBER


def test_a_shape_offered_twice_is_not_called_a_change() -> None:
    twice = site("a", option(certain(0.0)), option(certain(0.0)))
    (entry,) = make_plan("run", demand(1e6), [twice], NOW).sites
    assert "as early" in entry.shape_reason and "plan before" not in entry.shape_reason


def test_speeds_beyond_all_measure_make_a_plan_all_the_same() -> None:
    fast = replace(option(certain(HOUR)), tokens_per_s=1e15)
    plan = make_plan("run", demand(1.0), [site("a", fast)], NOW)
    assert plan.finish.quantile(0.5) == pytest.approx(HOUR)


@pytest.mark.parametrize(("tail", "number"), [("7", 7), ("9" * 12, 10**12 - 1), ("9" * 190, None), ("x", None)])
def test_a_number_that_no_plan_reaches_is_none(tail: str, number: int | None) -> None:
    assert number_of(f"run.a.{tail}", "run", "a") == number


def test_a_report_of_thousands_of_jobs_that_wait_is_taken_in_without_looking_at_each_pair() -> None:
    jobs = tuple(
        QueueJob(f"run.a.{n}", str(n), SHAPE, QueueState.PENDING, Instant(NOW - 10_000_000 + n)) for n in range(1, 1501)
    )
    queue = absorb(new_queue(SiteName("a")), QueueReport(NOW, jobs=jobs), "run")
    again = absorb(queue, QueueReport(Instant(NOW + 1), jobs=jobs), "run")
    assert again.waits == queue.waits and len(again.waits.of(SHAPE).open) == 1500 and again.last_number == 1500
