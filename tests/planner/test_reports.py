"""From reports of queues to plans and forecasts, over the coordinator's HTTP interface."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import World, build_world

from crosstrain.placement.shape import Shape
from crosstrain.placement.site_queue import MOST_STATED
from crosstrain.storage import placement_store, run_store
from crosstrain.storage.database import open_sqlite

HOUR = 3600
MS = 3_600_000
SHORT = {"partition": "gpu", "nodes": 1, "gpus": 4, "walltime_s": HOUR}
LONG = {"partition": "gpu", "nodes": 4, "gpus": 4, "walltime_s": 8 * HOUR}


def report(world: World, name: str, site: str = "lumi", **more: Any) -> dict[str, Any]:
    body = {
        "report": f"report-{name}",
        "scheduler": "slurm",
        "offered": [{"shape": SHORT, "tokens_per_s": 1e-3}, {"shape": LONG, "tokens_per_s": 4e-3}],
        **more,
    }
    reply = world.http.post(f"placement/{site}/reports", json=body)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def plan(world: World) -> dict[str, Any]:
    reply = world.http.get("placement/plan")
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def waits(world: World) -> dict[str, Any]:
    return dict(world.http.get("placement/waits").json())


def estimate(shape: dict[str, Any], hours: float, age_ms: int = 0) -> dict[str, Any]:
    return {"shape": shape, "age_ms": age_ms, "test_only_s": hours * HOUR}


def job(name: str, state: str, submitted: float, started: float | None = None) -> dict[str, Any]:
    ages = {"submitted_age_ms": round(submitted * MS)}
    if started is not None:
        ages["started_age_ms"] = round(started * MS)
    return {"name": name, "job_id": "77", "shape": LONG, "state": state, **ages}


def test_without_reports_there_is_an_empty_plan_that_says_why(world: World) -> None:
    found = plan(world)
    assert found["sites"] == [] and found["finish_s"]["0.5"] is None and "crosstrain collect" in found["reason"]


def test_a_report_makes_a_plan_with_a_job_to_submit_and_forecasts(world: World) -> None:
    report(world, "first-one", estimates=[estimate(SHORT, 1), estimate(LONG, 30)])
    (site,) = plan(world)["sites"]
    assert site["role"] == "member" and site["submit"][0]["name"].endswith(".lumi.1")
    rows = waits(world)["rows"]
    assert [row["basis"] for row in rows] == ["test-only", "test-only"]
    assert rows[0]["test_only_s"] == HOUR and rows[0]["error"]["outcomes"] == 0
    assert set(rows[0]["bands_s"]) == {"0.5", "0.8", "0.9"}


def test_the_same_report_counts_once(world: World) -> None:
    wait = {"shape": SHORT, "submitted_age_ms": 5 * MS, "wait_s": 60.0}
    assert "estimates" in report(world, "repeated", waits=[wait])["reason"]
    assert "known already" in report(world, "repeated", waits=[wait])["reason"]
    report(world, "again", waits=[wait])  # the same wait in another report
    for number in range(4):
        report(world, f"more-{number}", waits=[{**wait, "submitted_age_ms": (4 - number) * MS}])
    assert waits(world)["rows"][0]["outcomes"] == 5


def test_a_replanned_run_keeps_its_plan_and_its_jobs(world: World) -> None:
    report(world, "first-one", estimates=[estimate(SHORT, 1), estimate(LONG, 2)])
    first = plan(world)["sites"][0]
    name = first["submit"][0]["name"]
    world.clock.advance(600_000)
    pending = {**job(name, "pending", 0.1), "shape": first["shape"]}
    report(world, "second", estimates=[estimate(SHORT, 1), estimate(LONG, 2)], jobs=[pending])
    second = plan(world)["sites"][0]
    assert second["keep"] == [name] and second["shape"] == first["shape"]
    assert name not in [item["name"] for item in second["submit"]]


def test_outcomes_of_own_jobs_make_the_record_of_past_error(world: World) -> None:
    run = world.config.run.name
    for number in range(1, 7):
        name = f"{run}.lumi.{number}"
        report(world, f"queued-{number}", estimates=[estimate(LONG, 10)], jobs=[job(name, "pending", 0.0)])
        world.clock.advance(2 * MS)
        report(world, f"started-{number}", jobs=[job(name, "running", 2.0, 0.0)])
        report(world, f"repeated-{number}", jobs=[job(name, "ended", 2.0, 0.0)])
    (row,) = [row for row in waits(world)["rows"] if row["shape"] == LONG]
    assert row["error"]["outcomes"] == 6 and row["error"]["over_raw"] < 1
    report(world, "queued-last", estimates=[estimate(LONG, 10)])
    (row,) = [row for row in waits(world)["rows"] if row["shape"] == LONG]
    assert row["point_s"] == pytest.approx(2 * HOUR, rel=0.5)


def test_a_chained_job_waits_from_when_nothing_but_the_queue_held_it(world: World) -> None:
    name = f"{world.config.run.name}.lumi.1"
    report(world, "chained-1", estimates=[estimate(LONG, 10)], jobs=[job(name, "pending", 0.0)])
    world.clock.advance(8 * MS)
    report(world, "chained-2", jobs=[job(name, "pending", 0.0)])  # the job before it ends now
    world.clock.advance(2 * MS)
    report(world, "started-1", jobs=[job(name, "running", 2.0, 0.0)])
    (row,) = [row for row in waits(world)["rows"] if row["shape"] == LONG]
    assert row["outcomes"] == 1 and row["error"]["outcomes"] == 1
    # 10 h were estimated, 2 h it waited: the scale falls, as it would not for 10 h.
    report(world, "again", estimates=[estimate(LONG, 10)])
    (row,) = [row for row in waits(world)["rows"] if row["shape"] == LONG]
    assert row["point_s"] < 8 * HOUR


def test_a_job_that_vanished_is_unknown_and_said_so(world: World) -> None:
    name = f"{world.config.run.name}.lumi.1"
    report(world, "queued-one", jobs=[job(name, "pending", 0.0)])
    report(world, "vanished", jobs=[])
    found = plan(world)
    assert found["notes"] == [f"lumi: job {name} is neither in the queue nor in accounting"]
    assert found["sites"][0]["submit"][0]["name"] == f"{world.config.run.name}.lumi.2"


def test_a_late_report_does_not_undo_what_is_known(world: World) -> None:
    world.clock.advance(10 * MS)
    name = f"{world.config.run.name}.lumi.1"
    report(world, "newest", jobs=[job(name, "running", 3.0, 1.0)])
    report(world, "spooled", age_ms=2 * MS, jobs=[job(name, "pending", 1.0)], estimates=[estimate(SHORT, 3)])
    assert plan(world)["sites"][0]["keep"] == [name]
    assert waits(world)["rows"][0]["test_only_s"] == 3 * HOUR


def test_a_used_up_award_leaves_the_site_out_and_the_rest_is_planned(world: World) -> None:
    report(world, "empty-award", site="poor", node_hours_left=0.0, estimates=[estimate(SHORT, 0)])
    report(world, "good-award", site="rich", estimates=[estimate(SHORT, 0)])
    poor, rich = plan(world)["sites"]
    assert poor["role"] == "out" and "award is used up" in poor["reason"] and rich["role"] == "member"


def test_absurd_and_past_estimates_do_not_stop_a_plan(world: World) -> None:
    report(world, "strange", estimates=[estimate(SHORT, -5), estimate(LONG, 1e6)])
    (site,) = plan(world)["sites"]
    assert site["role"] == "member"
    short, long = waits(world)["rows"]
    assert short["test_only_s"] == 0 and long["basis"] == "unknown"


def test_a_finished_coordinator_restart_keeps_queues_and_plan(world: World) -> None:
    report(world, "first-one", estimates=[estimate(SHORT, 1), estimate(LONG, 2)])
    before = plan(world)
    world.restart()
    after = plan(world)
    assert [site["shape"] for site in after["sites"]] == [site["shape"] for site in before["sites"]]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"offered": [{"shape": {**SHORT, "nodes": 0}}]}, "nodes"),
        ({"estimates": [{"shape": SHORT, "age_ms": 0, "test_only_s": "soon"}]}, "test_only_s"),
        ({"jobs": [job("has a blank", "pending", 0.0)]}, "name"),
        ({"discount": 2.0}, "discount"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_malformed_reports_are_refused_by_the_name_of_the_field(
    world: World, change: dict[str, Any], named: str
) -> None:
    body = {"report": "malformed-1", "scheduler": "slurm", **change}
    reply = world.http.post("placement/lumi/reports", json=body)
    assert reply.status_code == 422 and named in reply.json()["detail"]
    assert plan(world)["sites"] == []


def test_a_finished_run_is_planned_without_jobs_and_the_plan_says_why(world: World) -> None:
    name = f"{world.config.run.name}.lumi.1"
    report(world, "before-end", estimates=[estimate(LONG, 0)], jobs=[job(name, "pending", 0.0)])
    assert plan(world)["sites"][0]["role"] == "member"
    with world.database.write() as connection:
        run_store.finish(connection, "all rounds are done", world.clock.now())
    found = plan(world)
    (site,) = found["sites"]
    assert (site["role"], site["submit"], site["keep"], found["tokens_left"]) == ("out", [], [name], 0)
    assert "nothing is left to train" in found["reason"] and found["finish_s"]["0.9"] == 0


def test_a_job_with_a_number_beyond_measure_spoils_no_plan(world: World) -> None:
    name = f"{world.config.run.name}.lumi."
    report(world, "numbered", jobs=[job(name + "9" * (200 - len(name)), "ended", 9.0, 8.0)])
    assert plan(world)["sites"][0]["submit"][0]["name"] == f"{name}1"


def test_a_plan_stays_as_it_is_while_nothing_but_time_passes(world: World) -> None:
    report(world, "first-one", estimates=[estimate(SHORT, 1), estimate(LONG, 5)])
    report(world, "other-one", site="snellius", estimates=[estimate(SHORT, 3), estimate(LONG, 1)])
    made = []
    for _ in range(12):
        made.append(
            [
                (each["site"], each["role"], each["shape"], each["depth"], each["submit"])
                for each in plan(world)["sites"]
            ]
        )
        world.clock.advance(5 * 60_000)
    assert made == [made[0]] * 12


def test_reports_of_one_site_at_the_same_time_all_count(fast_tmp: Path) -> None:
    """Each is worked out beside the others, and what came first is not overwritten by what was worked out without it."""
    world = build_world(fast_tmp, database=open_sqlite(fast_tmp / "run.sqlite"))
    report(world, "first-one", estimates=[estimate(SHORT, 1)])

    def ask(number: int) -> dict[str, Any]:
        # The same age, so that none is older news than another, and one ended job each: a job that is over is remembered.
        return report(world, f"at-once-{number}", jobs=[job(f"run.lumi.{number}", "cancelled", 10 + number)])

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(ask, range(1, 33)))
    assert all("1 job of lumi" in each["reason"] for each in told)
    with world.database.read() as connection:
        (queue,) = placement_store.queues(connection)
    assert {each.name for each in queue.jobs} == {f"run.lumi.{number}" for number in range(1, 33)}
    assert sum(len(held.waits) for held in queue.waits.shapes) == 32
    world.database.close()


def test_many_new_jobs_at_once_share_forecasts_of_their_time(world: World) -> None:
    report(world, "first-one", estimates=[estimate(LONG, 30)])
    jobs = [job(f"run.lumi.{number}", "pending", 1 + number / 20) for number in range(1000)]
    report(world, "many-jobs", jobs=jobs)
    with world.database.read() as connection:
        (queue,) = placement_store.queues(connection)
    opened = queue.waits.of(Shape(**LONG)).open
    assert len(opened) == 1000
    assert 2 <= len({each.stated.made_at for each in opened}) <= MOST_STATED + 1
    for each in opened:
        assert 0 <= each.submitted_at - each.stated.made_at <= 51 * MS / MOST_STATED
