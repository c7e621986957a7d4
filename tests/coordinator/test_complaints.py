"""A trouble of the coordinator's own that requests hear of is in its log too, once a minute however many hear it."""

from __future__ import annotations

import pytest
from tests.fakes import World, sha256

from crosstrain.domain.timeouts import COMPLAINT_S

DATA = b"weights"
MOMENT_MS = 1000


def put(world: World) -> int:
    return world.http.put(f"blobs/{sha256(DATA)}", params={"offset": 0, "total": len(DATA)}, content=DATA).status_code


def test_trouble_is_said_in_the_log_and_seldom(world: World, caplog: pytest.LogCaptureFixture) -> None:
    (world.directory / "objects").mkdir(exist_ok=True)
    (world.directory / "objects" / "uploads").write_text("no directory")
    said = []
    for wait_ms in (0, MOMENT_MS, MOMENT_MS, round(1000 * COMPLAINT_S)):
        world.clock.advance(wait_ms)
        caplog.clear()
        assert put(world) == 507
        said.append([record.message for record in caplog.records if record.levelname == "ERROR"])
    assert [len(lines) for lines in said] == [1, 0, 0, 1]
    assert said[0][0].startswith("a request is told to come again: ")
    assert "uploads" in said[0][0]
    assert said[3][0].startswith("a request is told to come again (and 2 before it): ")
    assert put(world) == 507


def test_what_is_no_trouble_of_the_coordinators_is_not_said(world: World, caplog: pytest.LogCaptureFixture) -> None:
    assert world.http.get(f"blobs/{sha256(DATA)}").status_code == 404
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
