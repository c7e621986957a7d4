"""Table 4 of arXiv 2610.03457, as printed."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from crosstrain.cli.main import app
from crosstrain.simulation.table4 import reproduce

PRINTED = {
    # days, {site: (wait h, active h, jobs, 10^9 tokens)}, hours of waiting for both, saved per cent, best site alone
    "A": (1.112, {"LUMI": (0.1, 26.58, 108, 29.93), "Snellius": (0.2, 26.48, 16, 70.07)}, 26.71, 0.1, 37.98),
    "B": (2.276, {"LUMI": (0.2, 54.43, 220, 61.29), "Snellius": (40.0, 14.63, 8, 38.71)}, 66.51, 17.9, 77.8),
    "C": (1.583, {"LUMI": (40.0, 0.0, 0, 0.0), "Snellius": (0.2, 37.78, 20, 100.0)}, 66.51, 42.9, 37.98),
}


@pytest.mark.parametrize("name", PRINTED)
def test_every_printed_digit(name: str) -> None:
    days, sites, wait_all, saved, single = PRINTED[name]
    found = reproduce()[name]
    assert round(found.days, 3) == days
    assert round(found.wait_all_h, 2) == wait_all
    assert round(100 * found.saving, 1) == saved
    assert found.best_single_h == pytest.approx(single, abs=0.05)
    for site, (wait, active, jobs, billions) in sites.items():
        row = found.sites[site]
        assert (row.wait_h, round(row.active_h, 2), row.jobs, round(row.tokens / 1e9, 2)) == (
            wait,
            active,
            jobs,
            billions,
        )


def test_the_command_prints_the_same_figures() -> None:
    shown = CliRunner().invoke(app, ["simulate", "table4", "--json"])
    assert shown.exit_code == 0
    document = json.loads(shown.stdout)
    assert {name: round(100 * row["saving"]) for name, row in document.items()} == {"A": 0, "B": 18, "C": 43}
    assert document["B"]["sites"]["Snellius"]["jobs"] == 8
    text = CliRunner().invoke(app, ["simulate", "table4"]).stdout
    assert "54.63 h = 2.276 days" in text and "shorter by 17.9 %" in text
