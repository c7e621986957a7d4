"""Campaigns on made-up queues: truth, realised chains, strategies, the command, and the production coordinator beside them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crosstrain.cli.main import app
from crosstrain.errors import UsageError
from crosstrain.placement.offer import Demand
from crosstrain.placement.shape import Shape
from crosstrain.simulation.campaign.realise import Place, realise
from crosstrain.simulation.campaign.scenario import load_scenario
from crosstrain.simulation.campaign.truth import ReplayedWaits, shifted
from crosstrain.simulation.queues.synthetic import SyntheticQueue, synthetic_probes

HOUR = 3600.0
SHAPE = Shape("batch", 4, 0, 8 * 3600)
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "campaigns.md"


def example() -> str:
    """The scenario of the guide."""
    found = re.search(r"```toml\n(tokens = .*?)```", GUIDE.read_text(encoding="utf-8"), re.S)
    assert found is not None
    return found[1]


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "SCENARIO.toml"
    path.write_text(example(), encoding="utf-8")
    return path


def place(hours: float) -> Place:
    return Place(ReplayedWaits([0.0, 1e7], {SHAPE: [hours * HOUR, hours * HOUR]}), {SHAPE: 100.0})


def test_waits_are_linear_between_probes_and_constant_outside() -> None:
    truth = ReplayedWaits([0.0, 100.0], {SHAPE: [50.0, 10.0]})
    assert [truth.wait_s(SHAPE, at) for at in (-5.0, 0.0, 25.0, 100.0, 1e9)] == [50.0, 50.0, 40.0, 10.0, 10.0]
    assert shifted(truth, 25.0).wait_s(SHAPE, 0.0) == 40.0


@pytest.mark.parametrize(("depth", "hours"), [(0, 3 + 8 + 3 + 8), (1, 3 + 8 + 8)])
def test_a_realised_chain_counts_the_waits_between_its_jobs(depth: int, hours: float) -> None:
    found = realise([place(3.0)], [(SHAPE, depth)], Demand(100.0 * 16 * HOUR, 1e9, 0.0), 1e7)
    assert found.finish_s == pytest.approx(hours * HOUR)
    assert found.node_hours == pytest.approx(4 * 16) and found.wasted == pytest.approx(0.0)


def test_waiting_for_all_starts_with_the_last() -> None:
    places, work = [place(1.0), place(5.0)], Demand(200.0 * 4 * HOUR, 1e9, 0.0)
    alone = realise(places, [(SHAPE, 1), (SHAPE, 1)], work, 1e7)
    together = realise(places, [(SHAPE, 1), (SHAPE, 1)], work, 1e7, together=True)
    assert together.finish_s == pytest.approx(9 * HOUR) and alone.finish_s == pytest.approx(7 * HOUR)


def test_a_site_that_is_left_out_does_nothing() -> None:
    found = realise([place(1.0), place(0.0)], [(SHAPE, 1), None], Demand(100.0 * HOUR, 1e9, 0.0), 1e7)
    assert found.finish_s == pytest.approx(2 * HOUR) and found.jobs[1] == () and found.speeds == (100.0, 0.0)


def test_made_up_queues_have_their_medians_and_a_biased_estimate() -> None:
    queue = SyntheticQueue(((1, 3600), (4, 7200)), (HOUR, 10 * HOUR), memory_h=2.0, bias=3.0, noise=0.1, days=400)
    table = synthetic_probes(queue, "seed")
    for column, median_h in enumerate((1, 10)):
        waits = sorted(table.wait_s[:, column].tolist())
        assert waits[len(waits) // 2] == pytest.approx(median_h * HOUR, rel=0.15)
    ratios = sorted((table.test_only_s / table.wait_s).ravel().tolist())
    assert ratios[len(ratios) // 2] == pytest.approx(3.0, rel=0.05)
    assert (synthetic_probes(queue, "seed").wait_s == table.wait_s).all()


def test_the_command_compares_all_strategies(scenario: Path) -> None:
    shown = CliRunner().invoke(app, ["simulate", "campaign", str(scenario), "--starts", "12", "--json"])
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)["strategies"]
    assert found["hindsight"]["regret"] == 0 and found["wait_for_all"]["saving"] == 0
    assert all(each["regret"] >= 0 for each in found.values())
    assert found["planner_with_squeue"]["saving"] > found["submit_everywhere"]["saving"]
    assert found["planner"]["saving_p10"] <= found["planner"]["saving_p50"] <= found["planner"]["saving_p90"]


def test_the_production_coordinator_takes_as_long_as_the_simulation_of_rounds_says(scenario: Path) -> None:
    smaller = example().replace("tokens = 2e11", "tokens = 2e10", 1).replace("round_tokens = 4e9", "round_tokens = 1e9")
    scenario.write_text(smaller, encoding="utf-8")
    arguments = ["simulate", "campaign", str(scenario), "--starts", "3", "--ledger", "--json"]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    ledger = json.loads(shown.stdout)["ledger"]
    assert ledger["problems"] == [] and ledger["generations"] >= 5
    assert ledger["hours"] == pytest.approx(ledger["expected_hours"], rel=0.15)


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("tokens = 2e11", "tokens = -1", "tokens"),
        ("tokens = 2e11", "tokns = 2e11", "tokns"),
        ("median_h = [0.5, 4, 16]", "median_h = [0.5]", "one median_h for each of 3 shapes"),
        ('name = "snellius"', 'name = "lumi"', "the same name"),
        ('kind = "synthetic", median_h = [0.5, 4, 16]', 'kind = "trace", file = "no.swf", nodes = 3', "no.swf"),
        ("hours = 12", "hours = 0", "hours"),
        ('kind = "synthetic"', 'kind = "synthetic", sigma = 1e6', "sigma"),
        ('kind = "synthetic"', 'kind = "synthetic", noise = inf', "noise"),
        ("median_h = [0.5, 4, 16]", "median_h = [0.5, 4, 1e300]", "median_h"),
        ("[[sites]]", "[[sites", "not valid TOML"),
    ],
)
def test_a_wrong_scenario_is_refused_with_the_key(scenario: Path, before: str, after: str, named: str) -> None:
    scenario.write_text(example().replace(before, after, 1), encoding="utf-8")
    shown = CliRunner().invoke(app, ["simulate", "campaign", str(scenario), "--starts", "1"])
    assert isinstance(shown.exception, UsageError) and named in shown.exception.message


def test_a_scenario_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_scenario(tmp_path / "none.toml")
