"""Every recorded output of a real batch system reads as its `.expect` says.

An `.expect` holds what was run and the right reading; a key of it that a text alone cannot tell (what really happened later)
is listed here.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from typer.main import get_command

from crosstrain.cli.main import app

COMMAND = get_command(app)
SAMPLES = Path(__file__).parent / "samples"
NOT_IN_THE_TEXT = {"would_really_pend", "estimate_wait_s", "actual_wait_s", "actual", "wait_s_if_now_is"}
"""Facts about the sample that its text does not hold; the waits have a test of their own."""


def reading(name: str, *options: str) -> dict[str, Any]:
    sample = json.loads((SAMPLES / f"{name}.expect").read_text(encoding="utf-8"))
    words = ["parse", sample["kind"], str(SAMPLES / f"{name}.txt"), "--exit-code", str(sample["exit_code"]), *options]
    result = CliRunner().invoke(COMMAND, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def differences(expected: object, found: object, place: str = "") -> list[str]:
    """Where the reading is not what is expected; keys that are not expected are no difference."""
    if isinstance(expected, dict) and isinstance(found, dict):
        keys = expected.keys() - NOT_IN_THE_TEXT
        return [
            line
            for key in sorted(keys)
            for line in differences(expected[key], found.get(key, "absent"), f"{place}.{key}")
        ]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return [line for index, (left, right) in pairs for line in differences(left, right, f"{place}[{index}]")]
    return [] if expected == found else [f"{place}: expected {expected!r}, found {found!r}"]


def options_of(sample: dict[str, Any]) -> list[str]:
    """What the command line tells beside the output: when it was run."""
    found = re.search(r"at Wed Feb 3 (\d\d:\d\d:\d\d) PST 2021", sample["command"])
    return ["--now", f"2021-02-03T{found[1]}"] if found else []


@pytest.mark.parametrize("name", sorted(path.stem for path in SAMPLES.glob("*.expect")))
def test_sample_reads_as_expected(name: str) -> None:
    sample = json.loads((SAMPLES / f"{name}.expect").read_text(encoding="utf-8"))
    found, expected = reading(name, *options_of(sample)), sample["expect"]
    if isinstance(expected, list):
        assert differences(expected, found["rows"], "rows") == []
    elif isinstance(expected.get("rows"), int):
        assert (len(found["rows"]), found["error"]) == (expected["rows"], expected["error"])
    else:
        assert differences(expected, found) == []


FORMATS = {
    "e06-squeue-custom-separator": "%i^^^%t^^^%r^^^%B^^^%u^^^%D^^^%C^^^%R^^^%P^^^%l^^^%M^^^%S^^^%j^^^%V",
    "f02-sacct-array-sets": "jobid,jobidraw,submit,start,end,elapsed,state,nnodes,timelimit",
    "f07-sacct-requeue-duplicates": "AdminComment,AllocCPUS,Elapsed,JobID,JobIDRaw,MaxRSS,NNodes,ReqMem,State,Timelimit,TotalCPU",
    "f12-sacct-durations": "JobID,Start,End,Elapsed,State",
    "f13-sacct-running-and-unknown-state": "jobid,submit,start,end,elapsed,state,nnodes,timelimit",
    "f15-sacct-node-fail": "jobid,exitcode,state,ncpus,elapsed,totalcpu,submit,start,end,maxrss,maxvmsize",
    "g03-sinfo-gres": "nodehost,gres,gresused,statelong",
}


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_sample_without_header_reads_the_same_when_its_format_is_told(name: str) -> None:
    sample = json.loads((SAMPLES / f"{name}.expect").read_text(encoding="utf-8"))
    found = reading(name, "--columns", FORMATS[name])
    assert found["columns_from"] == "given"
    expected = sample["expect"]
    assert differences(expected, found["rows"] if isinstance(expected, list) else found) == []


def test_wait_is_never_negative() -> None:
    sample = json.loads((SAMPLES / "a06-testonly-snellius-like.expect").read_text(encoding="utf-8"))
    waits = sample["expect"]["wait_s_if_now_is"]
    found = {now: reading("a06-testonly-snellius-like", "--now", now)["wait_s"] for now in waits}
    assert found == waits
