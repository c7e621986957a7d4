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
from crosstrain.errors import UsageError

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


def document(kind: str, text: str, exit_code: int = 0) -> dict[str, Any]:
    words = ["parse", kind, "-", "--exit-code", str(exit_code)]
    result = CliRunner().invoke(COMMAND, words, input=text.encode(), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


VERDICT = (
    "sbatch: Job 12 to start at 2021-11-13T04:47:02 using 256 processors on nodes nid[1-2],x7 in partition standard"
)


@pytest.mark.parametrize(
    "text",
    [
        VERDICT,
        f"\x1b[1m{VERDICT}\x1b[0m\r\n",
        VERDICT.lower(),
        VERDICT.replace("sbatch:", "sbatch.bin:"),
        VERDICT.removeprefix("sbatch: "),
        VERDICT.replace(" using", " a using"),
        f"{VERDICT.replace('13T', '12T')}\n{VERDICT}\n",
        f"---\nWelcome to error: this machine\n--> Checking allocation failure rates...OK\n{VERDICT}\n",
        f"sbatch: error: spank: x.so: Plugin file not found\n{VERDICT}\n",
        f"\ufeff{VERDICT}\x00",
    ],
)
def test_verdict_is_found_under_banners_wrappers_and_colours(text: str) -> None:
    found = document("testonly", text)
    assert {key: found[key] for key in ("outcome", "start", "node_count", "processors", "partition", "error_kind")} == {
        "outcome": "estimate", "start": "2021-11-13T04:47:02", "node_count": 3, "processors": 256,
        "partition": "standard", "error_kind": None,
    }  # fmt: skip


def test_preempted_jobs_are_told() -> None:
    assert document("testonly", f"{VERDICT}\nsbatch:   Preempts: 12,13\n")["preempts"] == [12, 13]


@pytest.mark.parametrize("text", [VERDICT[:60], "", "sbatch: hello"])
def test_half_a_verdict_is_none(text: str) -> None:
    assert document("testonly", text)["outcome"] == "unparseable"


@pytest.mark.parametrize(
    ("reason", "retryable", "scope"),
    [
        ("QOSMaxSubmitJobPerUserLimit", True, "site"),
        ("AssocMaxJobsLimit", True, "site"),
        ("AssocGrpCPUMinutesLimit", "maybe", "site"),
        ("AssocMaxWallDurationPerJobLimit", False, "shape"),
        ("QOSMaxNodePerJobLimit", False, "shape"),
    ],
)
def test_limit_passes_or_stays_by_its_name(reason: str, retryable: object, scope: str) -> None:
    general = "Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
    found = document("submit", f"sbatch: error: {reason}\nsbatch: error: {general}\n", 1)
    assert (found["error_kind"], found["detail"], found["retryable"], found["scope"]) == (
        "policy_limit", reason, retryable, scope,
    )  # fmt: skip


def test_lost_answer_may_have_made_a_job() -> None:
    text = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    assert document("submit", text, 1)["submission_may_exist"] is True
    assert document("testonly", text, 1)["submission_may_exist"] is False


def test_planned_start_of_pbs_survives_a_function_that_breaks_its_json() -> None:
    job = (
        '"11.host":{\n"Job_Name":"a",\n"job_state":"Q",\n"etime":"Wed Feb  3 11:00:00 2021",\n'
        '"estimated":{\n"start_time":"Wed Feb  3 12:05:00 2021"\n},\n"Resource_List":{\n"nodect":2,\n"walltime":"01:00:00"\n},\n'
        '"Variable_List":{\n"BASH_FUNC_x%%":"() {  echo "hi"\n}"\n}\n}'
    )
    (row,) = document("pbs_qstat_f", '{\n"Jobs":{\n' + job + "\n}\n}\n")["rows"]
    assert (row["est_start"], row["start"], row["nodes"], row["time_limit_s"], row["state"]) == (
        "2021-02-03T12:05:00", None, 2, 3600, "Q",
    )  # fmt: skip


def test_empty_cell_of_an_aligned_table_moves_no_other() -> None:
    text = (
        "JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME\n"
        "124     user1   PEND  normal     login1                  my job     Feb  2 00:44\n"
    )
    (row,) = document("lsf_bjobs", text)["rows"]
    assert (row["state"], row["name"], row["submit_text"]) == ("PEND", "my job", "Feb  2 00:44")


def test_unknown_kind_lists_those_there_are(tmp_path: Path) -> None:
    for words in (
        ["parse", "nosuch"],
        ["parse", "squeue", str(tmp_path / "absent")],
        ["parse", "squeue", "-", "--tz", "Mars"],
    ):
        error = CliRunner().invoke(COMMAND, words, input=b"").exception
        assert isinstance(error, UsageError)
    error = CliRunner().invoke(COMMAND, ["parse", "nosuch"]).exception
    assert isinstance(error, UsageError)
    assert "pbs_qstat_T" in error.hint


def test_kind_is_found_with_dashes_and_in_any_case() -> None:
    assert document("PBS-qstat-t", "")["kind"] == "pbs_qstat_T"
