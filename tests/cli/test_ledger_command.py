"""`crosstrain ledger` of a run that is going on, of none, and of one that somebody changed by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes import World, build_world, run_config, sqlite_file
from typer.testing import CliRunner

from crosstrain.cli.main import app
from crosstrain.errors import UsageError

RUN = """
[model]
vocab_size = 16
"""


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    path = tmp_path / "RUN.toml"
    path.write_text(RUN)
    (tmp_path / "coordinator").mkdir()
    return path


@pytest.fixture
def world(run_file: Path) -> Iterator[World]:
    """A round of two contributions merged, then one lease out, one contributed in part and one lapsed."""
    with sqlite_file(run_file.parent / "coordinator" / "run.sqlite") as database:
        made = build_world(run_file.parent, run_config(), database=database)
        alpha, beta = made.begin("alpha", "beta")
        for driver in (alpha, beta):
            driver.work()
        for driver in (alpha, beta):
            driver.contribute()
        made.step()
        alpha.work()
        made.pass_time(12_000, beta)
        alpha.register()
        alpha.holds = 1
        alpha.work()
        beta.work()
        beta.contribute(blocks=1)
        yield made


def test_the_table_sums_up_while_the_run_goes_on(world: World, run_file: Path) -> None:
    done = CliRunner().invoke(app, ["ledger", str(run_file), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [row["site"] for row in found["sites"]] == ["alpha", "beta"]
    parts = ("merged", "contributed", "leased", "lost", "shed")
    for row in (*found["sites"], found["total"]):
        assert row["granted"] == sum(row[part] for part in parts)
    alpha, beta = found["sites"]
    assert (alpha["entries"], alpha["grants"], alpha["expiries"], alpha["leased"]) == (2, 3, 1, 4)
    assert (beta["contributed"], beta["lost"]) == (1, 3)
    assert found["total"]["merged"] == found["blocks"]["merged"] == 8
    assert found["problems"] == []


def test_the_text_has_totals_percentages_and_where_the_run_is(world: World, run_file: Path) -> None:
    done = CliRunner().invoke(app, ["ledger", str(run_file)])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert next(line for line in lines if line.startswith("total")).split()[:4] == ["total", "4", "3", "5"]
    assert "%" in next(line for line in lines if line.startswith("of granted"))
    assert lines[-1] == "run run, generation 1: 8 of 20 blocks are merged (40.0 %)"


def test_a_terminal_of_80_columns_shows_every_number_and_heading_whole(world: World, run_file: Path) -> None:
    done = CliRunner().invoke(app, ["ledger", str(run_file)], env={"FORCE_COLOR": "1", "COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    text = re.sub("\x1b\\[[0-9;]*m", "", done.stdout)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert {"ranks", "RTT", "entries", "grants", "expiries", "granted", "contributed", "leased"} <= set(text.split())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE sites SET granted_blocks = 9 WHERE name = 'beta'", "site beta was granted 9 blocks, 8"),
        ("UPDATE sites SET merged_blocks = 7 WHERE name = 'beta'", "the sites have 11 merged blocks, the run has 8"),
        ("DELETE FROM spans WHERE state = 'merged'", "the run has 20"),
    ],
)
def test_sums_that_differ_are_named(world: World, run_file: Path, change: str, problem: str) -> None:
    world.execute(change)
    done = CliRunner().invoke(app, ["ledger", str(run_file)])
    assert done.exit_code == 1
    assert problem in done.stderr


def test_a_directory_without_a_run_says_so(run_file: Path) -> None:
    done = CliRunner().invoke(app, ["ledger", str(run_file)])
    assert isinstance(done.exception, UsageError)
    assert "There is no run" in done.exception.message


def test_a_database_without_a_run_says_so(run_file: Path) -> None:
    with sqlite_file(run_file.parent / "coordinator" / "run.sqlite"):
        done = CliRunner().invoke(app, ["ledger", str(run_file)])
    assert isinstance(done.exception, UsageError)
