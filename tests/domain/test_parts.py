"""How uploads past the coordinator are cut: within what S3 takes, without a gap, the same for whoever goes on with them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstrain.domain.parts import MIB, PartRule

GIB = 1 << 30
RULE = PartRule()
totals = st.one_of(
    st.integers(0, 1 << 24), st.integers(0, 5 << 40), st.integers(0, 9_999).map(lambda n: n * RULE.usual)
)
rules = st.builds(PartRule, st.integers(1, 50), st.integers(1, 80), st.integers(1, 300))


@given(totals)
def test_parts_are_what_s3_takes(total: int) -> None:
    size = RULE.part_bytes(total)
    count = -(-total // size)
    assert 5 * MIB <= size <= 5 * GIB
    assert count <= 10_000
    assert size == 8 * MIB or (size - 1) * 10_000 < total  # no larger than it must be


@given(rules, st.integers(0, 20_000))
def test_parts_cover_every_byte_once(rule: PartRule, total: int) -> None:
    parts = rule.cut(total)
    spans = list(parts.values())
    assert list(parts) == list(range(1, len(parts) + 1))
    assert len(parts) <= rule.most
    assert [start for start, _ in spans[:1]] == [0] * min(1, total)
    assert all(stop == start for (_, stop), (start, _) in pairwise(spans))
    assert spans[-1][1] == total if spans else total == 0
    assert {stop - start for start, stop in spans[:-1]} <= {rule.part_bytes(total)}
    assert all(0 < stop - start <= rule.part_bytes(total) for start, stop in spans)


@given(rules, st.integers(1, 20_000), st.dictionaries(st.integers(1, 320), st.integers(0, 100)))
def test_a_part_counts_if_it_has_the_length_that_it_should_have(
    rule: PartRule, total: int, sizes: dict[int, int]
) -> None:
    parts, missing = rule.cut(total), rule.missing(total, sizes)
    assert missing.items() <= parts.items()
    for number, (start, stop) in parts.items():
        assert (number not in missing) == (sizes.get(number) == stop - start)
    assert rule.missing(total, {number: stop - start for number, (start, stop) in parts.items()}) == {}


@pytest.mark.parametrize(
    ("total", "parts", "last"),
    [
        (5 * MIB, 1, 5 * MIB),
        (8 * MIB + 1, 2, 1),
        (200 * 8 * MIB, 200, 8 * MIB),
        (200 * 8 * MIB + 7, 201, 7),
        (10_000 * 8 * MIB, 10_000, 8 * MIB),
        (10_000 * 8 * MIB + 1, 10_000, 8 * MIB - 9_998),
        (5 << 40, 10_000, (5 << 40) - 9_999 * -(-(5 << 40) // 10_000)),
    ],
)
def test_parts_of_some_blobs(total: int, parts: int, last: int) -> None:
    cut = RULE.cut(total)
    start, stop = cut[parts]
    assert (len(cut), stop - start) == (parts, last)
