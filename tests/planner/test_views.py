"""What people see of plans and forecasts."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from tests.fakes import World
from tests.planner.test_reports import LONG, SHORT, estimate, report

from crosstrain.dashboard.placement import plan_view, waits_view
from crosstrain.dashboard.timeline import draw
from crosstrain.errors import EnvironmentFault, UsageError
from crosstrain.storage import run_store
from crosstrain.wire.placement import PlanReply, WaitsReply


def text_of(view: object) -> str:
    console = Console(file=io.StringIO(), width=220, force_terminal=False)
    console.print(view)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


@pytest.fixture
def planned(world: World) -> PlanReply:
    report(world, "lumi-one", estimates=[estimate(SHORT, 1), estimate(LONG, 30)], notes=["sacct is \x1b[2J not there"])
    report(world, "rich-one", site="rich", estimates=[estimate(SHORT, 0)])
    report(world, "poor-one", site="poor", node_hours_left=0.0, estimates=[estimate(SHORT, 0)])
    return PlanReply.model_validate(world.http.get("placement/plan").json())


def test_the_plan_shows_every_site_with_its_reason(planned: PlanReply) -> None:
    shown = text_of(plan_view(planned))
    for words in (
        "done in",
        "80 % between",
        "lumi",
        "poor: no shape can be submitted",
        "award is used up",
        "instead gpu",
    ):
        assert words in shown
    assert "\x1b" not in shown


def test_waits_show_bands_beside_the_record_of_past_error(world: World, planned: PlanReply) -> None:
    shown = text_of(waits_view(WaitsReply.model_validate(world.http.get("placement/waits").json())))
    for words in ("80 %", "vs raw", "test-only", "30.0 h", "sacct is"):
        assert words in shown
    assert "\x1b" not in shown


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
