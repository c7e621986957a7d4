"""`crosstrain collect` and `crosstrain submit` as a user calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.collector.conftest import Facility
from typer.testing import CliRunner, Result

from crosstrain.cli.main import app
from crosstrain.errors import CrosstrainError, EnvironmentFault, IntegrityError, Unreachable, UsageError

Call = Callable[..., Result]


def run_file(facility: Facility, url: str, more: str = "") -> Path:
    path = facility.directory / "RUN.toml"
    path.write_text(
        f"""[model]
vocab_size = 8
[site]
url = "{url}"
dir = "sites"
[sites.lumi.batch]
scheduler = "local"
command = ["{facility.program}"]
{more}
[[sites.lumi.batch.shapes]]
partition = "cpu"
hours = 1
tokens_per_s = 1e-3
"""
    )
    return path


@pytest.fixture
def call(facility: Facility) -> Call:
    def run(command: str, *words: str, more: str = "", url: str | None = None) -> Result:
        path = run_file(facility, url or facility.address, more)
        facility.world.clock.advance(1000)
        return CliRunner().invoke(app, [command, str(path), "--name", "lumi", *words])

    return run


def document(result: Result) -> dict[str, Any]:
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return dict(json.loads(result.stdout))


def error_of(result: Result, kind: type[CrosstrainError]) -> CrosstrainError:
    assert isinstance(result.exception, kind), result
    return result.exception


def test_from_nothing_to_a_queued_job(facility: Facility, call: Call) -> None:
    collected = call("collect")
    assert collected.exit_code == 0
    assert "1 shape on offer" in collected.stdout
    shown = call("submit")
    assert "submit run.lumi.1  would be submitted, cpu 1 node x 1 h" in shown.stdout
    assert "--apply submits" in shown.stdout
    assert facility.names() == []
    applied = document(call("submit", "--apply", "--json"))
    assert applied["submitted"][0] == {"name": "run.lumi.1", "job_id": "1"}
    assert applied["waiting"] == 0
    assert "keep   run.lumi.1" in call("submit").stdout
    assert "run.lumi.1" in facility.plan().keep


def test_collect_within_the_budget_asks_nothing(facility: Facility, call: Call) -> None:
    assert document(call("collect", "--json"))["report"]["notes"] == [
        "local has no dry run: waits are known from history alone"
    ]
    again = document(call("collect", "--json"))
    assert again["report"] is None
    assert "asked again in" in again["reason"]


def test_offline_reports_are_kept_and_delivered_in_order(facility: Facility, call: Call) -> None:
    more = "probe_every_s = 0"
    for number in range(1, 4):
        kept = document(call("collect", "--offline", "--json", more=more))
        assert (kept["waiting"], kept["delivered"]) == (number, 0)
    delivered = document(call("collect", "--json", more=more))
    assert (delivered["waiting"], delivered["delivered"]) == (0, 4)
    assert facility.plan().heard_age_ms is not None


def test_coordinator_that_is_down_costs_no_report(
    facility: Facility, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crosstrain.collector.outbox.REPORT_ANSWER_S", 0.2)
    away = "http://127.0.0.1:9"
    kept = call("collect", "--json", url=away)
    assert kept.exit_code == 0
    assert document(kept)["waiting"] == 1
    error = error_of(call("submit", "--apply", url=away), Unreachable)
    assert "does not have the queue" in error.message
    assert facility.names() == []
    assert document(call("collect", "--json"))["delivered"] == 2


def test_program_of_the_scheduler_that_is_missing_is_named(call: Call) -> None:
    error = error_of(call("collect", more='prefix = ["no-such-ssh", "login1"]'), EnvironmentFault)
    assert "no-such-ssh" in error.message


def test_unknown_sites_and_contradicting_options_are_refused(facility: Facility, call: Call) -> None:
    path = run_file(facility, facility.address)
    unknown = error_of(CliRunner().invoke(app, ["collect", str(path), "--name", "lummi"]), UsageError)
    assert "those with one are lumi" in unknown.message
    assert not (facility.directory / "sites" / "lummi").exists()
    assert "contradict" in error_of(call("submit", "--apply", "--dry-run"), UsageError).message


def test_damaged_journal_stops_everything(facility: Facility, call: Call) -> None:
    assert call("submit", "--apply").exit_code == 0
    (facility.directory / "sites/lumi/batch/jobs.json").write_text('{"entries": [')
    for command in (("submit", "--apply"), ("collect",)):
        assert "jobs.json" in error_of(call(*command, more="probe_every_s = 0"), IntegrityError).message
    (facility.directory / "sites/lumi/batch/spent.json").write_text("not JSON")
    (facility.directory / "sites/lumi/batch/jobs.json").unlink()
    # The queue still knows the names.
    again = document(call("submit", "--apply", "--json"))
    assert "run.lumi.1" in [job["name"] for job in again["keep"]]
    assert facility.names().count("run.lumi.1") == 1


@pytest.mark.parametrize("moment", ["before", "after"])
def test_command_that_is_killed_around_the_submission_submits_nothing_twice(
    facility: Facility, call: Call, moment: str
) -> None:
    run = {"before": "", "after": '"$@" > /dev/null; '}[moment]
    (wrapper,) = facility.wrapper(f'case "$*" in *" submit "*) {run}kill -9 $PPID; exit 1;; esac; exec "$@"')
    path = run_file(facility, facility.address, f'prefix = ["{wrapper}"]')
    words = [sys.executable, "-m", "crosstrain", "submit", str(path), "--name", "lumi", "--apply"]
    assert subprocess.run(words, check=False, capture_output=True, timeout=60).returncode == -9
    assert facility.names() == {"before": [], "after": ["run.lumi.1"]}[moment]
    again = document(call("submit", "--apply", "--json"))
    if moment == "before":
        assert {each["kind"] for each in again["refused"]} == {"outcome_unknown"}
    else:
        assert [job["name"] for job in again["keep"]] == ["run.lumi.1"]
    call("submit", "--apply")
    names = facility.names()
    assert len(names) == len(set(names))
