"""The benchmark of a whole exchange runs and says what it promises; what it measures is no test's business."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from crosstrain.batch.command import run

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "transfer.py"
PATIENCE_S = 300.0

pytestmark = pytest.mark.system


@pytest.fixture
def tools() -> None:
    for name in ("nginx", "curl", "openssl"):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")


@pytest.mark.usefixtures("tools")
def test_one_repetition_gives_every_promised_figure(tmp_path: Path) -> None:
    options = ["--mib", "4", "--repetitions", "1", "--streams", "2", "--flower", "0", "--directory", str(tmp_path)]
    done = run([sys.executable, str(PROGRAM), *options, "--json"], timeout=PATIENCE_S)
    assert done.code == 0, done.stderr
    result = json.loads(done.stdout)
    ways = {(row["system"], row["tls"], row["streams"]) for row in result["rows"]}
    assert ways == {
        *(("ours", False, None), ("ours", False, 2), ("ours", True, None)),
        *(("nginx", False, 2), ("nginx", True, 2)),
    }
    for row in result["rows"]:
        assert 0 < row["download_s"] <= row["transfer_s"] <= row["judged_s"] <= row["exchange_s"]
        assert row["server_cpu_s"] >= 0 and row["client_cpu_s"] > 0
    assert result["ours_over_nginx"] > 0
    assert result["exchange_over_nginx"] >= result["ours_over_nginx"]
    assert result["coordinator_peak_mib"] == max(
        row["server_peak_mib"] for row in result["rows"] if row["system"] == "ours"
    )
    assert result["flower_over_ours"] is None and result["flower_over_transfer"] is None
    assert list(tmp_path.iterdir()) == []
