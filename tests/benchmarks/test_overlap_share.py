"""With overlap, real sites train while their weights cross a slow line; every window is still in the model exactly once."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.demo.rehearsal import text_file
from tests.system.runs import check_the_record

from crosstrain.assembly import open_run
from crosstrain.batch.command import run

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "overlap.py"
PATIENCE_S = 200.0

pytestmark = pytest.mark.system


def test_the_exchange_is_beside_the_training(tmp_path: Path) -> None:
    text = text_file(tmp_path / "text.txt", 1500)
    options = [
        "--parts",
        "time",
        "--step-s",
        "0.1",
        "--time-rounds",
        "5",
        "--text",
        str(text),
        "--directory",
        str(tmp_path),
    ]
    done = run([sys.executable, str(PROGRAM), *options, "--json"], timeout=PATIENCE_S)
    assert done.code == 0, done.stderr
    found = json.loads(done.stdout)
    # The bar, 0.05 beside 0.3, is held on a virtual clock (tests/simulation/test_overlap_share_of_time.py): machines that run
    # tests do other things as well, for which sites of either kind wait.
    assert found["exchange_share_with"] < found["exchange_share_without"]
    for arm in ("exchange_share_without", "exchange_share_with"):
        files = open_run(tmp_path / arm / "RUN.toml")
        proof = check_the_record(files, ("alpha", "beta"))
        assert proof.merged > 0
    log = (tmp_path / "exchange_share_with" / "logs" / "alpha.log").read_text()
    assert "is moved to generation" in log
