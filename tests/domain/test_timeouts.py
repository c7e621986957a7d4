"""The table of timeouts: derived from the round, the bytes and the link, and never shorter than what it waits for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstrain.config import RunConfig
from crosstrain.domain import timeouts
from crosstrain.domain.timeouts import Circumstances, derive

GIB = 1 << 30
USUAL = Circumstances(
    round_s=1800.0, block_s=60.0, download_bytes=GIB, upload_bytes=GIB, rate=10e6, rtt_s=0.1, checkpoint_s=30.0
)

circumstances = st.builds(
    Circumstances,
    round_s=st.floats(1, 1e5),
    block_s=st.floats(0.1, 1e4),
    download_bytes=st.integers(0, 1 << 40),
    upload_bytes=st.integers(0, 1 << 40),
    rate=st.none() | st.floats(1e3, 1e10),
    rtt_s=st.floats(0, 60),
    checkpoint_s=st.floats(0, 1e4),
    heartbeat_s=st.floats(0.1, 600),
    ttl_floor_s=st.floats(0.1, 600),
)


def seconds(found: Circumstances) -> dict[str, float]:
    return {row.name: row.seconds for row in derive(found)}


@given(found=circumstances)
def test_no_timeout_is_shorter_than_what_it_waits_for(found: Circumstances) -> None:
    told = seconds(found)
    assert told["answer to a request"] > found.rtt_s
    assert told["one heartbeat"] >= 2 * found.rtt_s
    assert told["time to live of a lease"] >= 2 * found.heartbeat_s + 2 * found.rtt_s - 0.001
    assert told["a site that has not asked yet"] > told["download of a generation"]
    assert told["drain before the cutoff"] >= found.block_s + told["upload of a delta"]
    assert told["cutoff of a round"] > found.round_s + told["drain before the cutoff"] - found.block_s
    assert told["any other phase without progress"] >= found.checkpoint_s


@given(found=circumstances, factor=st.floats(1.1, 100))
def test_a_slower_link_never_shortens_a_timeout(found: Circumstances, factor: float) -> None:
    fast = replace(found, rate=found.rate or 1e6)
    slow = replace(fast, rate=(fast.rate or 1e6) / factor, rtt_s=factor * fast.rtt_s)
    before, after = seconds(fast), seconds(slow)
    assert all(after[name] >= before[name] - 1e-9 for name in before)


def test_values_of_a_usual_run() -> None:
    told = seconds(USUAL)
    assert told["upload of a delta"] == pytest.approx(GIB / 10e6 + 0.2)
    assert told["drain before the cutoff"] == pytest.approx(60 + 30 + GIB / 10e6 + 0.2)
    assert told["time to live of a lease"] == 30.0


@pytest.mark.parametrize(
    ("deadline_s", "rtt_s", "expected"),
    [(1e9, 0.1, 30.0), (10.0, 0.1, 10.0), (0.0, 0.1, 5.0), (1e9, 20.0, 80.0), (5.0, 8.0, 16.0)],
)
def test_one_attempt_ends_with_the_callers_patience_but_not_before_a_busy_machine_answers(
    deadline_s: float, rtt_s: float, expected: float
) -> None:
    assert timeouts.attempt_s(deadline_s, rtt_s) == expected


def test_looks_into_a_mailbox_slow_down_to_their_limit() -> None:
    pauses = [timeouts.FIRST_LOOK_S]
    while pauses[-1] < timeouts.LONGEST_LOOK_S:
        pauses.append(timeouts.look_again_s(pauses[-1]))
    assert 5 < len(pauses) < 20
    assert timeouts.look_again_s(pauses[-1]) == timeouts.LONGEST_LOOK_S


def test_the_table_can_be_read_beside_its_rules() -> None:
    rows = derive(USUAL)
    assert len({(row.topic, row.name) for row in rows}) == len(rows) > 90
    assert max(len(row.name) for row in rows) <= 41  # on 80 columns
    assert all(row.topic and row.rule and row.reason and row.seconds > 0 for row in rows)


def test_every_key_of_the_table_is_a_key_of_the_run_file_with_that_default() -> None:
    config = RunConfig.model_validate({"model": {"vocab_size": 16}})
    keyed = [row for row in derive(USUAL) if row.key]
    assert len(keyed) == 8
    for row in keyed:
        section, _, name = row.key.partition(".")
        assert getattr(getattr(config, section), name) > 0
