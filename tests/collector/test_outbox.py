"""Reports that wait: order, age, bound, and what the coordinator does not take."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.collector.conftest import Facility

from crosstrain.collector import outbox
from crosstrain.collector.outbox import Kept, Outbox
from crosstrain.domain.ids import Instant
from crosstrain.wire.placement import ReportRequest


def report(number: int) -> ReportRequest:
    return ReportRequest(report=f"report-{number:04}", scheduler="local")


def kept(directory: Path) -> list[str]:
    return [Kept.model_validate_json(path.read_bytes()).report.report for path in sorted(directory.glob("*.json"))]


def test_the_oldest_are_dropped_beyond_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MOST_KEPT", 3)
    box = Outbox(tmp_path)
    for number in range(5):
        box.put(report(number), Instant(0))
    assert kept(tmp_path) == ["report-0002", "report-0003", "report-0004"]


def test_age_is_that_of_the_look_and_never_negative(facility: Facility, tmp_path: Path) -> None:
    box = Outbox(tmp_path)
    box.put(report(1), Instant(1_000_000))
    assert box.deliver(facility.client, "lumi", Instant(1_500_000)).delivered == 1
    assert facility.plan().heard_age_ms == pytest.approx(500_000, abs=5_000)
    box.put(report(2), Instant(9_000_000))
    assert box.deliver(facility.client, "lumi", Instant(1)).delivered == 1
    assert facility.plan().heard_age_ms == pytest.approx(0, abs=5_000)


def test_damaged_reports_are_set_aside_and_do_not_hold_up_the_others(facility: Facility, tmp_path: Path) -> None:
    box = Outbox(tmp_path)
    box.put(report(1), Instant(0))
    (tmp_path / "00000001.json").write_text("{")
    box.put(report(2), Instant(0))
    found = box.deliver(facility.client, "lumi", Instant(0))
    assert (found.delivered, len(box)) == (1, 0)
    assert (tmp_path / "00000001.damaged").exists()


def test_a_proxy_that_says_no_loses_no_report(facility: Facility, tmp_path: Path) -> None:
    box = Outbox(tmp_path)
    box.put(report(1), Instant(0))
    found = box.deliver(facility.client, "no/such/site", Instant(0))
    assert (found.delivered, found.left) == (0, 1)
    assert found.trouble
