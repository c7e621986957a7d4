from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from crosstrain.errors import UsageError
from crosstrain.simulation.queues.swf import read_swf

HEADER = "; MaxProcs: 64\n; UnixStartTime: 0\n"


def row(number: int, submit: float, wait: float, run: float, requested: int, limit: float, allocated: int = -1) -> str:
    return f"{number} {submit} {wait} {run} {allocated} -1 -1 {requested} {limit} -1 -1 7 -1 -1 1 -1 -1 -1\n"


GOOD = row(1, 0, 5, 100, 8, 200) + row(2, 60, -1, 100, 16, 100)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_rows_become_jobs_with_unknown_waits_unknown(tmp_path: Path) -> None:
    trace = read_swf(written(tmp_path / "small.swf", HEADER + GOOD))
    assert (trace.name, trace.nodes, trace.left_out) == ("small", 64, {})
    assert [(job.submit_s, job.nodes, job.limit_s, job.run_s, job.wait_s) for job in trace.jobs] == [
        (0, 8, 200, 100, 5),
        (60, 16, 100, 100, None),
    ]
    assert trace.load == (8 * 100 + 16 * 100) / (64 * 60)


def test_gzipped_log_is_the_same_log(tmp_path: Path) -> None:
    plain = read_swf(written(tmp_path / "small.swf", HEADER + GOOD))
    (tmp_path / "small.swf.gz").write_bytes(gzip.compress((HEADER + GOOD).encode()))
    assert read_swf(tmp_path / "small.swf.gz") == plain


def test_size_falls_back_to_what_was_allocated(tmp_path: Path) -> None:
    text = HEADER + GOOD + row(3, 70, 0, 1, -1, 10, allocated=32)
    assert read_swf(written(tmp_path / "log.swf", text)).jobs[-1].nodes == 32


def test_run_time_is_cut_five_minutes_after_the_limit(tmp_path: Path) -> None:
    text = HEADER + GOOD + row(3, 70, 0, 104, 1, 100) + row(4, 71, 0, 9999, 1, 100)
    assert [job.run_s for job in read_swf(written(tmp_path / "log.swf", text)).jobs[2:]] == [104, 400]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (row(3, 70, 0, 0, 1, 10), "run time unknown or zero"),
        (row(3, 70, 0, -1, 1, 10), "run time unknown or zero"),
        (row(3, 70, 0, 5, -1, 10), "size unknown"),
        (row(3, 70, 0, 5, 1, -1), "requested time unknown"),
        (row(3, -1, 0, 5, 1, 10), "submit time unknown"),
        (row(3, 70, 0, 5, 65, 10), "larger than the machine"),
        (row(3, 70, 864001, 5, 1, 10), "waited more than 10 days"),
        (row(3, 99_999_999_999_999, 0, 5, 1, 10), "submitted more than 20 years after the first"),
    ],
)
def test_row_that_cannot_be_replayed_is_left_out_and_counted(tmp_path: Path, bad: str, reason: str) -> None:
    trace = read_swf(written(tmp_path / "log.swf", HEADER + GOOD + bad))
    assert len(trace.jobs) == 2
    assert trace.left_out == {reason: 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HEADER + GOOD + "3 1 2\n", "line 5: expected 18 columns, found 3"),
        (HEADER + GOOD.replace("100", "soon"), "line 3: expected numbers"),
        (HEADER + GOOD.replace("60 -1", "nan -1"), "line 4: expected numbers"),
        (HEADER + GOOD.replace("60 -1", "inf -1"), "line 4: expected numbers"),
        (GOOD, "no MaxProcs and no MaxNodes"),
        (HEADER, "there are no rows"),
        (HEADER + row(1, 0, 0, 5, 1, -1) * 9, "9 x requested time unknown"),
    ],
)
def test_file_that_is_no_usable_log_is_refused_with_what_is_wrong(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        read_swf(written(tmp_path / "log.swf", text))


def test_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_swf(tmp_path / "absent.swf")
    cut = tmp_path / "cut.swf.gz"
    cut.write_bytes(gzip.compress((HEADER + GOOD).encode())[:-12])
    with pytest.raises(UsageError, match="cannot be read"):
        read_swf(cut)
