"""Outputs that sites and people make odd: programs named by path, framed refusals, home-made separators, names that hold them."""

from __future__ import annotations

from typing import Any

import pytest

from crosstrain.batch.printed import Output
from crosstrain.cli.parse_documents import Context
from crosstrain.cli.parse_kinds import KINDS

POLICY = "Batch job submission failed: Job violates accounting/QOS policy"


def document(kind: str, text: str, exit_code: int = 0) -> dict[str, Any]:
    return KINDS[kind](Output(text, "", exit_code), Context(None, None, ""))


@pytest.mark.parametrize(
    "text",
    [
        f"/usr/bin/sbatch: error: QOSMaxWallDurationPerJobLimit\n/usr/bin/sbatch: error: {POLICY}\n",
        f"2026-11-07T09:00:00 [INFO] sbatch: error: QOSMaxWallDurationPerJobLimit\n2026-11-07 09:00:01,5 ERROR sbatch: error: {POLICY}\n",
        f"sbatch: error: {POLICY} (QOSMaxWallDurationPerJobLimit)\n",
        f"sbatch: error: ----------\nsbatch: error: QOSMaxWallDurationPerJobLimit\nsbatch: error: *****\nsbatch: error: {POLICY}\n",
    ],
)
def test_the_limit_is_found_wherever_the_site_names_it(text: str) -> None:
    found = document("submit", text, 1)
    assert (found["error_kind"], found["detail"], found["retryable"], found["scope"]) == (
        "policy_limit", "QOSMaxWallDurationPerJobLimit", False, "shape",
    )  # fmt: skip


def test_a_framed_refusal_is_told_in_its_words_and_not_in_its_frame() -> None:
    lines = ["-" * 30, "You must specify an account", "-" * 30, "Batch job submission failed: Unspecified error"]
    found = document("submit", "".join(f"sbatch: error: {line}\n" for line in lines), 1)
    assert (found["error_kind"], found["detail"]) == ("site_policy", "You must specify an account")


@pytest.mark.parametrize("separator", ["~", "#", "@@@", "::", "|", ";", ",", "\t", "^^^", "==="])
@pytest.mark.parametrize("header", [True, False])
def test_columns_are_told_apart_by_any_separator_that_people_choose(separator: str, header: bool) -> None:
    rows = [
        ["126", "PD", "(ReqNodeNotAvail, UnavailableNodes:nid[001-003,7])", "1-00:00:00", "N/A"],
        ["127", "R", "nid[001-003,005]", "30:00", "2026-11-07T09:18:44"],
        ["128_[1-3,5%2]", "PD", "(Priority)", "1:00:00", "2026-11-08T00:00:00"],
    ]
    names = [["JOBID", "ST", "NODELIST(REASON)", "TIME_LIMIT", "START_TIME"]] if header else []
    found = document("squeue", "".join(separator.join(row) + "\n" for row in [*names, *rows]))
    assert found["problems"] == []
    assert [(row["job_id"], row["state"], row["time_limit_s"], row["start"], row["reason"]) for row in found["rows"]] == [
        ("126", "PD", 86400, None, "ReqNodeNotAvail, UnavailableNodes:nid[001-003,7]"),
        ("127", "R", 1800, "2026-11-07T09:18:44", None),
        ("128", "PD", 3600, "2026-11-08T00:00:00", "Priority"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("header", "row"),
    [("JobID|JobName|State|NNodes", "55|a|b||c|COMPLETED|4"), ("JobID|State|NNodes|JobName", "55|COMPLETED|4|a|b||c")],
)
def test_a_name_that_holds_the_delimiter_moves_no_other_column(header: str, row: str) -> None:
    found = document("sacct", f"{header}\n{row}\n")
    assert found["problems"] == []
    assert [(job["job_id"], job["name"], job["state"], job["nodes"]) for job in found["rows"]] == [
        ("55", "a|b||c", "COMPLETED", 4)
    ]


def test_what_suffixes_say_is_read_from_words_too() -> None:
    states = ["plnd", "MIXED+PLANNED", "mixed-", "IDLE+POWERED_DOWN", "idle~", "maint", "down*", "DOWN+NOT_RESPONDING"]
    found = document("sinfo", "PARTITION|STATE\n" + "".join(f"p|{state}\n" for state in states))
    assert [row["flags"] for row in found["rows"]] == [
        ["planned"], ["planned"], ["planned"], ["powered_off"], ["powered_off"], ["maintenance"], ["not_responding"],
        ["not_responding"],
    ]  # fmt: skip


def test_quoted_cells_between_commas_hold_commas() -> None:
    found = document("squeue", 'JOBID,NAME,ST,REASON\n5,"a,b",PD,"(Priority)"\n6,x,R,None\n')
    assert [(row["job_id"], row["name"], row["state"], row["reason"]) for row in found["rows"]] == [
        ("5", "a,b", "PD", "Priority"), ("6", "x", "R", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("gres", "kind", "count"),
    [
        ("gpu:4", None, 4),
        ("gpu:h100:4(S:0-1)", "h100", 4),
        ("gpu:1g.10gb:2", "1g.10gb", 2),
        ("gpu:nvidia_a100-sxm4-80gb:8(S:0-1),shard:32", "nvidia_a100-sxm4-80gb", 8),
        ("gpu:a100_1g.5gb:7,gpu:a100:1", None, 8),
        ("(null)", None, None),
    ],
)
def test_gpus_are_counted_whatever_their_type_is_called(gres: str, kind: str | None, count: int | None) -> None:
    (row,) = document("sinfo", f"PARTITION|GRES|NODES\np|{gres}|10\n")["rows"]
    assert (row["gpu_type"], row["gpus"]) == (kind, count)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_numbers_without_end_are_no_numbers_and_break_nothing(kind: str) -> None:
    endless = "9" * 5000
    places = (
        f"sbatch: Job {endless} to start at {endless} using {endless} processors on nodes n[1-{endless}] in partition p",
        f"JOBID|STATE|NODES|TIME_LIMIT|PRIORITY|NAME\n{endless}_[1-{endless}%{endless}]|PD|{endless}|{endless}-00:00:00|{endless}|x",
        f"PARTITION|GRES|NODES\np|gpu:{endless}|{endless}",
        f"PartitionName=p MaxTime={endless} MaxNodes={endless} TotalNodes={endless}",
        f"Job Id: 5.s\n    job_state = R\n    Resource_List.nodect = {endless}\n    Exit_status = {endless}",
        f"job 9 requires {endless} procs for {endless}:00:00\nEstimated Rsv based start in {endless}:00 on Thu",
        f'{{"id": {endless}, "nnodes": {endless}}}',
    )
    for text in places:
        for exit_code in (0, 1):
            assert endless not in str(document(kind, f"{text}\n", exit_code).get("node_count"))
