"""The pure parts: limits, own plan, history, and what becomes of a job."""

from __future__ import annotations

import random
from typing import Any

import pytest

from crosstrain.batch.readings import JobRow, JobState, Limits, PartitionLimits, PartitionRow, Reservation
from crosstrain.batch.scheduler import Found
from crosstrain.batch.times import from_epoch
from crosstrain.batch_section import BatchSection, ShapeSection
from crosstrain.collector.eligible import Rules, most_queued, why_not
from crosstrain.collector.history import charged_h, discount, job_bodies, past_runs, runs, waits
from crosstrain.collector.journal import Entry, Jobs
from crosstrain.collector.own_plan import others_hidden, queue_of, reserved, waits_of
from crosstrain.collector.tracking import FORGOTTEN_MS, SETTLE_MS, Place, listed, resolved, updated
from crosstrain.domain.ids import Instant
from crosstrain.placement.queue_plan import Queue
from crosstrain.placement.run_times import NEWEST_RUNS, PastRun, RunTimes
from crosstrain.placement.shape import Shape
from crosstrain.wire.placement import ShapeBody

HOUR = 3600
T = 1_800_000_000
NOW = Instant(1000 * T)
BODY = ShapeBody(partition="gpu", nodes=2, walltime_s=4 * HOUR)
NAME = "run.lumi.1"


def row(state: JobState, **fields: Any) -> JobRow:
    for key in ("submit", "eligible", "start", "end"):
        if fields.get(key) is not None:
            fields[key] = from_epoch(fields[key])
    told = {"nodes": 2, "partition": "gpu", "time_limit_s": 4 * HOUR, "submit": from_epoch(T - 2 * HOUR), **fields}
    return JobRow(job_id=told.pop("job_id", "7"), state=state, state_word=state.value, **told)


def entry(state: Any = "pending", **fields: Any) -> Entry:
    return Entry(**{"name": NAME, "shape": BODY, "state": state, "intent_ms": NOW - 7_200_000, "job_id": "7", **fields})


# -- limits ---------------------------------------------------------------------------------------------------------------


def section(**keys: Any) -> BatchSection:
    return BatchSection(shapes=(ShapeSection(partition="gpu", hours=4.0),), **keys)


@pytest.mark.parametrize(
    ("walltime_s", "said"),
    [
        (600, "10 min"),
        (60, "1 min"),
        (HOUR, "1 h"),
        (HOUR + 60, "1.02 h"),
        (36 * HOUR, "36 h"),
        (8760 * HOUR, "8760 h"),
    ],
)
def test_a_time_limit_is_told_as_people_say_it(walltime_s: int, said: str) -> None:
    assert str(Shape("gpu", 2, 0, walltime_s)) == f"gpu 2 nodes x {said}"


def test_shapes_that_differ_by_a_minute_have_names_that_differ() -> None:
    # What a probe taught is remembered by the shape's name.
    names = {str(Shape("gpu", 1, 0, 60 * minutes)) for minutes in range(1, 60 * 24 * 8)}
    assert len(names) == 60 * 24 * 8 - 1


GPU = PartitionLimits(
    "gpu", "UP", nodes=8, max_nodes=4, min_nodes=1, max_time_s=24 * HOUR, default_time_s=None, qos="part"
)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (Shape("gpu", 2, 4, 4 * HOUR), None),
        (Shape("gpu", 5, 4, 4 * HOUR), "allows 4 nodes"),
        (Shape("gpu", 2, 4, 25 * HOUR), "allows 24 h"),
        (Shape("gpu", 3, 4, 4 * HOUR), "QoS debug allows 2 nodes"),
        (Shape("gpu", 1, 4, 9 * HOUR), "QoS part allows 8 h"),
        (Shape("gpu", 1, 4, 7 * HOUR), "the account pool allows 6 h"),
    ],
)
def test_each_limit_has_its_sentence(shape: Shape, reason: str | None) -> None:
    rules = Rules(
        partitions=[GPU],
        qos=[Limits("debug", max_nodes=2), Limits("part", max_wall_s=8 * HOUR), Limits("other", max_nodes=1)],
        associations=[Limits("pool", max_wall_s=6 * HOUR, qos=("debug",)), Limits("else", max_wall_s=60)],
    )
    found = why_not(shape, section(account="pool", qos="debug"), rules)
    assert (reason in "; ".join(found)) if reason else found == []


def test_unknown_accounts_and_qos_are_said_and_unknown_limits_forbid_nothing() -> None:
    shape = Shape("gpu", 400, 0, 1000 * HOUR)
    assert why_not(shape, section(account="pool", qos="debug"), Rules()) == []
    rules = Rules([GPU], [Limits("normal")], [Limits("else", qos=("normal",))])
    words = "; ".join(why_not(Shape("gpu", 1, 0, HOUR), section(account="pool", qos="debug"), rules))
    assert "no QoS debug" in words
    assert "no association with the account pool" in words
    limited = Rules([GPU], [Limits("debug", max_submit=1)], [Limits("pool", max_submit=3, qos=("debug",))])
    assert most_queued(section(account="pool", qos="debug"), limited) == 1
    assert most_queued(section(account="pool"), limited) == 3


# -- own plan -------------------------------------------------------------------------------------------------------------


def nodes(idle: int, used: int) -> list[PartitionRow]:
    return [PartitionRow("gpu", state="idle", nodes=idle), PartitionRow("gpu", state="allocated", nodes=used)]


@pytest.mark.parametrize(
    ("hours", "start_h", "count", "meets"),
    [
        (2, 0.0, 4, True),  # would run into it
        (1, 0.0, 4, False),  # ends before it
        (2, 3.0, 4, False),  # begins after it
        (2, 0.0, 3, False),  # one node is left
    ],
)
def test_a_maintenance_that_a_job_would_meet_is_seen(hours: int, start_h: float, count: int, meets: bool) -> None:
    start, end = from_epoch(T + HOUR), from_epoch(T + 3 * HOUR)
    maintenance = Reservation("maint", start, end, (), count, frozenset({"MAINT"}))
    shape = Shape("gpu", 1, 0, hours * HOUR)
    assert reserved(shape, start_h * HOUR, [maintenance], nodes(idle=2, used=2), T) is meets


def planned(queue: Queue | None, shape: Shape) -> float | None:
    assert queue is not None
    return waits_of([shape], queue, random.Random(1).random).get(shape)


def test_own_plan_finds_the_hole_that_a_short_job_fits_in() -> None:
    queue = [
        row(JobState.RUNNING, nodes=3, elapsed_s=HOUR),
        row(JobState.PENDING, nodes=4, priority=10.0, reason="Priority"),
        row(JobState.PENDING, nodes=4, priority=0.0, reason="JobHeldUser"),
    ]
    seen = queue_of("gpu", queue, nodes(1, 3), RunTimes())
    assert planned(seen, Shape("gpu", 1, 0, 3 * HOUR)) == 0
    assert planned(seen, Shape("gpu", 1, 0, 4 * HOUR)) == pytest.approx(7 * HOUR)
    assert planned(seen, Shape("gpu", 5, 0, HOUR)) is None
    assert queue_of("cpu", queue, nodes(1, 3), RunTimes()) is None


def test_own_plan_takes_jobs_to_run_as_long_as_those_of_their_users_did() -> None:
    queue = [
        row(JobState.RUNNING, nodes=4, elapsed_s=HOUR, user="a"),
        row(JobState.PENDING, nodes=4, priority=10.0, reason="Priority", user="a"),
    ]
    run_times = RunTimes([PastRun("a", 4 * HOUR, 0.5)] * 200)
    seen = queue_of("gpu", queue, nodes(0, 4), run_times)
    assert planned(seen, Shape("gpu", 1, 0, 4 * HOUR)) == pytest.approx(HOUR + 2 * HOUR)


def test_nodes_in_use_without_visible_jobs_give_a_private_queue_away() -> None:
    mine = [row(JobState.RUNNING, nodes=1)]
    assert others_hidden(mine, nodes(1, 3))
    assert not others_hidden([*mine, row(JobState.RUNNING, nodes=2)], nodes(1, 3))
    assert not others_hidden([], nodes(4, 0))


def test_job_without_a_limit_ends_never() -> None:
    endless = row(JobState.RUNNING, nodes=3, time_limit_s=None, unlimited=True, elapsed_s=HOUR)
    seen = queue_of("gpu", [endless], nodes(1, 3), RunTimes([PastRun("a", HOUR, 0.5)] * 20))
    assert planned(seen, Shape("gpu", 1, 0, HOUR)) == 0
    assert planned(seen, Shape("gpu", 2, 0, HOUR)) is None


# -- history --------------------------------------------------------------------------------------------------------------


def test_waits_are_those_of_like_jobs_that_are_new_and_not_own() -> None:
    started = {"start": T - HOUR, "elapsed_s": HOUR, "user": "you"}
    rows = [
        row(JobState.RUNNING, job_id="1", **started),
        row(JobState.RUNNING, job_id="2", eligible=T - HOUR - 60, **started),
        row(JobState.RUNNING, job_id="3", **{**started, "nodes": 5}),
        row(JobState.RUNNING, job_id="4", **{**started, "time_limit_s": HOUR}),
        row(JobState.RUNNING, job_id="5", **{**started, "partition": "cpu"}),
        row(JobState.RUNNING, job_id="6", **{**started, "start": T - 3 * HOUR, "submit": T - 4 * HOUR}),
        row(JobState.RUNNING, job_id="7", **started),
        row(JobState.PENDING, job_id="8"),
        row(JobState.RUNNING, job_id="9", **{**started, "start": T + 99 * HOUR}),
    ]
    found = waits(rows, [BODY], {"7"}, Instant(1000 * (T - 2 * HOUR)), NOW)
    assert sorted(wait.wait_s for wait in found) == [60, HOUR]


def test_discount_is_used_over_requested_time_and_says_whose() -> None:
    rows = [
        row(JobState.COMPLETED, start=T - 3 * HOUR, elapsed_s=HOUR, user="a"),
        row(JobState.TIMEOUT, start=T - 3 * HOUR, elapsed_s=4 * HOUR, user="b"),
    ]
    ratio, note = discount(5 * rows)
    assert ratio == pytest.approx(5 / 8)
    assert "10 jobs of 2 users" in note
    assert discount([])[0] is None
    assert discount(2 * rows) == (None, "no usage discount: only 4 jobs of 2 users can be seen")


def test_own_jobs_alone_tell_no_discount() -> None:
    """With PrivateData accounting shows nobody else's; a job of seconds must not promise that nobody waits."""
    own = row(JobState.COMPLETED, start=T - 3 * HOUR, elapsed_s=3, user="me")
    assert discount(20 * [own]) == (None, "no usage discount: only 20 jobs of 1 user can be seen")


def ended(at_s: float, user: str, share: float = 0.5, **fields: Any) -> JobRow:
    told = {"start": at_s - HOUR, "end": at_s, "elapsed_s": round(4 * HOUR * share), "user": user, **fields}
    return row(JobState.COMPLETED, **told)


def test_jobs_that_ended_are_kept_once_in_the_order_of_their_ends() -> None:
    rows = [ended(T - 60, "b"), ended(T - 120, "a", 0.25), row(JobState.RUNNING, start=T - HOUR, elapsed_s=HOUR)]
    kept, until = runs(rows, (), 0, NOW)
    assert kept == (("a", 4.0 * HOUR, 0.25), ("b", 4.0 * HOUR, 0.5))
    assert until == 1000 * (T - 60)
    more = [*rows, ended(T - 30, "c"), ended(T + HOUR, "of a clock ahead"), ended(T - 20, "d", time_limit_s=None)]
    assert runs(more, kept, until, NOW) == ((*kept, ("c", 4.0 * HOUR, 0.5)), 1000 * (T - 30))
    assert len(runs(more, kept * NEWEST_RUNS, until, NOW)[0]) == NEWEST_RUNS


def test_run_times_of_a_handful_of_jobs_or_of_one_user_tell_nothing_of_others() -> None:
    assert past_runs([("a", HOUR, 0.01), ("b", HOUR, 0.01)]) == []
    assert past_runs([("me", HOUR, 0.01)] * 50) == []
    assert past_runs([("a", HOUR, 0.5), ("b", HOUR, 1.0)] * 5) == [PastRun("a", HOUR, 0.5), PastRun("b", HOUR, 1.0)] * 5


def test_award_is_charged_what_ran_and_committed_what_may_run() -> None:
    ran = entry("ended", started_ms=NOW - 3_600_000, ended_ms=NOW)
    jobs = Jobs(
        entries=(
            ran,
            *(entry(state, name=f"run.lumi.{n}") for n, state in enumerate(("cancelled", "running", "pending"), 2)),
        )
    )
    assert charged_h(jobs, pending=False) == 2 + 8
    assert charged_h(jobs, pending=True) == 2 + 8 + 8


# -- what becomes of a job ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "state", "started"),
    [
        (row(JobState.PENDING, start=T + HOUR), "pending", False),
        (row(JobState.RUNNING, start=T - HOUR), "running", True),
        (row(JobState.TIMEOUT, start=T - HOUR, end=T, elapsed_s=HOUR), "ended", True),
        (row(JobState.CANCELLED, start=T, end=T, elapsed_s=0), "cancelled", False),
        (row(JobState.CANCELLED, start=T - HOUR, end=T, elapsed_s=HOUR), "ended", True),
        (row(JobState.UNKNOWN), "unknown", False),
    ],
)
def test_states_of_rows(seen: JobRow, state: str, started: bool) -> None:
    found = updated(entry(), seen, Jobs(), NOW)
    assert (found.state, found.started_ms is not None) == (state, started)


def test_chained_job_waits_from_the_end_of_the_one_before() -> None:
    first = entry("running", job_id="6", name="run.lumi.1")
    second = entry(name="run.lumi.2", after="run.lumi.1")
    jobs = Jobs(entries=(first, second))
    held = updated(second, row(JobState.PENDING, reason="Dependency"), jobs, NOW)
    assert held.eligible_ms is None
    assert job_bodies(Jobs(entries=(held,)), NOW)[0].submitted_age_ms == 0
    over = jobs.put(first.model_copy(update={"state": "ended", "ended_ms": NOW - 600_000}))
    begun = updated(second, row(JobState.RUNNING, start=T - 60), over, NOW)
    (body,) = job_bodies(Jobs(entries=(begun,)), NOW)
    assert (body.submitted_age_ms, body.started_age_ms) == (600_000, 60_000)


def test_jobs_that_the_journal_never_heard_of_are_taken_in_by_their_name_and_others_are_not() -> None:
    place = Place("run", "lumi", "me", [BODY])
    rows = [
        row(JobState.RUNNING, job_id="1", name="run.lumi.4", user="me", start=T),
        row(JobState.RUNNING, job_id="2", name="run.lumi.5", user="you", start=T),
        row(JobState.RUNNING, job_id="3", name="run.lumi.x", user="me", start=T),
        row(JobState.RUNNING, job_id="4", name="run.other.6", user="me", start=T),
    ]
    (found,) = listed(Jobs(), rows, place, NOW).entries
    assert (found.name, found.job_id, found.shape, found.state) == ("run.lumi.4", "1", BODY, "running")


@pytest.mark.parametrize(
    ("found", "age_ms", "kept"),
    [
        (Found(None, queue_answered=True, remembers=True), SETTLE_MS - 1, True),
        (Found(None, queue_answered=True, remembers=True), SETTLE_MS, False),
        (Found(None, queue_answered=True, remembers=False), SETTLE_MS, True),
        (Found(None, queue_answered=True, remembers=False), FORGOTTEN_MS, False),
        (Found(None, queue_answered=False, remembers=True), 10 * FORGOTTEN_MS, True),
        (Found(None, queue_answered=True, remembers=True), -FORGOTTEN_MS, True),
    ],
)
def test_an_intent_is_given_up_only_when_somebody_can_tell(found: Found, age_ms: int, kept: bool) -> None:
    intent = entry("intent", job_id=None, intent_ms=NOW - age_ms)
    after = resolved(Jobs(entries=(intent,)), intent, found, SETTLE_MS, NOW)
    assert after.entries == ((intent,) if kept else ())


def test_an_intent_that_is_found_becomes_the_job() -> None:
    intent = entry("intent", job_id=None)
    found = Found(row(JobState.PENDING, job_id="99"), queue_answered=True, remembers=True)
    (after,) = resolved(Jobs(entries=(intent,)), intent, found, SETTLE_MS, NOW).entries
    assert (after.state, after.job_id) == ("pending", "99")
