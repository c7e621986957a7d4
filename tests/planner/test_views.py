"""What people see of plans and forecasts."""

from __future__ import annotations

import io
import re
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console
from tests.fakes import World
from tests.planner.test_reports import LONG, SHORT, estimate, job, report

from crosstrain.dashboard.placement import plan_view
from crosstrain.dashboard.timeline import draw
from crosstrain.dashboard.waits import waits_view
from crosstrain.errors import EnvironmentFault, UsageError
from crosstrain.storage import run_store
from crosstrain.wire.placement import PlanReply, WaitsReply


def text_of(view: object, width: int = 220) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(view)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


@pytest.fixture
def planned(world: World) -> PlanReply:
    report(world, "lumi-one", estimates=[estimate(SHORT, 1), estimate(LONG, 30)], notes=["sacct is \x1b[2J not there"])
    report(world, "rich-one", site="rich", estimates=[estimate(SHORT, 0)])
    report(world, "poor-one", site="poor", node_hours_left=0.0, estimates=[estimate(SHORT, 0)])
    return PlanReply.model_validate(world.http.get("placement/plan").json())


def test_the_plan_shows_every_site_with_a_short_sentence(planned: PlanReply) -> None:
    shown = text_of(plan_view(planned))
    for words in ("done in", "80 % between", "lumi: ", "to start in time", "poor: no shape can", "award is used up"):
        assert words in shown
    assert "sacct is" in shown
    assert "\x1b" not in shown
    assert "instead gpu" not in shown


def test_the_whole_reasoning_is_shown_on_request(planned: PlanReply) -> None:
    shown = text_of(plan_view(planned, why=True))
    for words in ("instead gpu", "queued ahead", "trains 0.004 tokens/s", "without rich", "award is used up"):
        assert words in shown


def test_waits_show_bands_beside_the_record_of_past_error(world: World, planned: PlanReply) -> None:
    wait = {"shape": SHORT, "wait_s": 7200.0}
    past = [{**wait, "submitted_age_ms": hours * 3_600_000} for hours in range(3, 9)]
    report(world, "with-waits", site="rich", waits=past)
    view = WaitsReply.model_validate(world.http.get("placement/waits").json())
    shown = text_of(waits_view(view))
    for words in ("80 %", "90 %", "scheduler", "sacct is"):
        assert words in shown
    assert "\x1b" not in shown
    assert "30.0 h" not in shown and "estimate 30.0 h" in text_of(waits_view(view, why=True))


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("why", [False, True])
def test_a_narrow_terminal_shows_every_number_whole(world: World, width: int, why: bool) -> None:
    for site in ("leonardo-booster", "lumi", "a-site-with-a-name-that-nobody-would-like-to-type-more-than-once"):
        jobs = [job(f"run.{site}.{i}", "ended", 60 + i, 20 + i) for i in range(2)]
        report(world, f"{site[:9]}-old", site=site, age_ms=70 * 3_600_000, estimates=[estimate(LONG, 30)])
        report(world, f"{site[:9]}-new", site=site, jobs=jobs, estimates=[estimate(SHORT, 11), estimate(LONG, 500)])
    plan = PlanReply.model_validate(world.http.get("placement/plan").json())
    waits = WaitsReply.model_validate(world.http.get("placement/waits").json())
    assert any(row.error.outcomes for row in waits.rows), "there must be a record of past error to show"
    for narrow, wide in (
        (text_of(plan_view(plan, why), width), text_of(plan_view(plan, why))),
        (text_of(waits_view(waits, why), width), text_of(waits_view(waits, why))),
    ):
        assert "…" not in narrow
        assert max(map(len, narrow.splitlines())) <= width
        missing = numbers(wide) - numbers(narrow)
        assert not missing


def numbers(shown: str) -> Counter[str]:
    return Counter(re.findall(r"(?<![\w.-])\d[\d.,]*(?:e[+-]?\d+)?(?![\w.-])", shown))


@pytest.mark.parametrize("name", ["plan.png", "plan.svg"])
def test_the_picture_is_written(tmp_path: Path, planned: PlanReply, name: str) -> None:
    draw(planned, tmp_path / name)
    head = (tmp_path / name).read_bytes()[:100]
    assert head.startswith(b"\x89PNG") or b"<?xml" in head


def test_a_picture_of_nothing_is_a_picture(tmp_path: Path, world: World) -> None:
    draw(PlanReply.model_validate(world.http.get("placement/plan").json()), tmp_path / "empty.png")
    assert (tmp_path / "empty.png").exists()


def test_a_picture_of_no_known_kind_or_place_is_refused(tmp_path: Path, planned: PlanReply) -> None:
    with pytest.raises(UsageError, match=r"plan\.docx"):
        draw(planned, tmp_path / "plan.docx")
    with pytest.raises(EnvironmentFault, match="cannot be written"):
        draw(planned, tmp_path / "missing" / "plan.png")


@pytest.mark.parametrize("finished", [False, True])
def test_a_picture_is_drawn_of_a_plan_without_jobs(world: World, tmp_path: Path, finished: bool) -> None:
    if finished:
        with world.database.write() as connection:
            run_store.finish(connection, "all rounds are done", world.clock.now())
    draw(PlanReply.model_validate(world.http.get("placement/plan").json()), tmp_path / "plan.png")
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
