"""No reader of scheduler output raises, and none takes an odd text for good news, whatever was printed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstrain.batch.printed import Output
from crosstrain.cli.parse_documents import Context
from crosstrain.cli.parse_kinds import KINDS

SAMPLES = sorted((Path(__file__).parent / "samples").glob("*.txt"))
TEXTS = [path.read_text(encoding="utf-8") for path in SAMPLES]
NOW = datetime(2026, 11, 29, 12)
OUTCOMES = {"estimate", "submitted", "refused", "unreachable", "unparseable"}

words = st.sampled_from(
    ["sbatch: ", "error: ", "Job 12 to start at ", "99999999999999", "\x1b[31m", "\x00", "|", "^^^", "[1-", "]", "(", "N/A",
     "JOBID ", "PARTITION ", "STATE ", "Unknown", "\t", "\r\n", "\n", "   ", "-1:-1", "2026-13-45T99:99:99", "é\ufffd", "{", "}",
     '"id":', "Job Id: 1.x\n", "    a = b\n", "CLUSTER: x\n", "9" * 400, "_[1-999999999%5]", "+", "1.batch|", "JobID|State\n"]
)  # fmt: skip
garbage = st.one_of(st.text(), st.lists(words, max_size=30).map("".join))


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A real output that was cut, mixed with another or spoilt at one place."""
    text, other = draw(st.sampled_from(TEXTS)), draw(st.sampled_from(TEXTS))
    place = draw(st.integers(0, len(text)))
    return draw(
        st.sampled_from([text[:place], text[place:], text[:place] + other, text[:place] + draw(garbage) + text[place:]])
    )


def documents(kind: str, text: str, exit_code: int) -> list[dict[str, object]]:
    contexts = (Context(), Context(UTC, NOW))
    return [KINDS[kind](Output(text, "", exit_code), context) for context in contexts]


@pytest.mark.parametrize("kind", sorted(KINDS))
@given(text=st.one_of(garbage, damaged()), exit_code=st.sampled_from([0, 1, 124, 255, -9]))
def test_reader_takes_any_text(kind: str, text: str, exit_code: int) -> None:
    for document in documents(kind, text, exit_code):
        json.dumps(document, allow_nan=False)
        if "outcome" in document:
            assert document["outcome"] in OUTCOMES
            happy = document["outcome"] in ("estimate", "submitted")
            assert (document["error_kind"] is None) == happy
        else:
            assert isinstance(document["rows"], list)


@given(text=garbage)
def test_text_without_a_verdict_is_no_estimate_and_no_job(text: str) -> None:
    printed = "".join(part for part in text if not part.isdecimal())
    for kind in ("testonly", "submit", "pbs_submit", "flux_submit"):
        for document in documents(kind, printed, 0):
            assert document["outcome"] not in ("estimate", "submitted"), (kind, printed)


@pytest.mark.parametrize(
    ("kind", "text", "line"),
    [
        ("squeue", "JOBID|STATE\n1|R\nbroken\n3|PD\n", 3),
        ("sacct", "JobID|State\n1|COMPLETED\n2|FAILED|3|4\n", 3),
        ("sinfo", "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\nx\ngpu up 1:00:00 3 idle n[1-3]\n", 2),
        ("pbs_qstat_T", "--- --\n1.h u q n -- 1 1 -- 01:00 Q --\nhalf a row\n", 3),
        ("lsf_bjobs", "JOBID USER STAT QUEUE\nxx u RUN q\n", 2),
        ("flux_json", '{"id": 1}\n{"id": \n', 2),
    ],
)
def test_row_that_cannot_be_read_is_named_and_hides_no_other(kind: str, text: str, line: int) -> None:
    document = documents(kind, text, 0)[0]
    problems = document["problems"]
    assert isinstance(problems, list)
    assert [problem["line"] for problem in problems] == [line]
    expected_rows = len(text.strip().splitlines()) - 1 - (0 if kind == "flux_json" else 1)
    assert isinstance(document["rows"], list)
    assert len(document["rows"]) == expected_rows
