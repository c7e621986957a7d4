"""Summaries of deltas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from crosstrain.outer import fused
from crosstrain.outer.delta import DeltaSummary, look, summarize_delta
from crosstrain.outer.encoding import BF16, Delta, quantize


def test_norm_over_all_tensors() -> None:
    rng = np.random.default_rng(0)
    parts = [
        rng.standard_normal((300, 400)).astype(np.float32),
        rng.standard_normal(70_000).astype(BF16),
        np.zeros(0, BF16),
    ]
    flat = np.concatenate([array.astype(np.float64).reshape(-1) for array in parts])
    summary = summarize_delta(iter(parts))
    assert summary.norm == pytest.approx(float(np.linalg.norm(flat)), rel=1e-12)
    assert summary == DeltaSummary(summary.norm, True, float(np.abs(flat).max()))
    assert summarize_delta(parts) == summary


@pytest.mark.skipif(fused.load() is None, reason="the package was installed without a C compiler")
@given(
    values=arrays(np.float32, st.integers(0, 1500), elements=st.floats(width=32)),
    kind=st.sampled_from(["fp32", "bf16", "int8", "int4"]),
)
def test_compiled_look_is_numpys(values: np.ndarray, kind: str) -> None:
    compiled = fused.load()
    assert compiled is not None
    with np.errstate(all="ignore"):
        flat: Delta = values.astype(BF16) if kind == "bf16" else values
        if kind in ("int8", "int4"):
            flat = quantize(np.nan_to_num(values, posinf=1e30, neginf=-1e30), "int8" if kind == "int8" else "int4")
    (squares, largest), (expected, magnitude) = compiled.look(flat), look(flat)
    assert math.isfinite(largest) == math.isfinite(magnitude)
    if math.isfinite(largest):
        assert largest == magnitude
        assert squares == pytest.approx(expected, rel=1e-12)


def test_nothing() -> None:
    assert summarize_delta([]) == DeltaSummary(0.0, True, 0.0)


def test_negative_extreme_and_no_overflow() -> None:
    assert summarize_delta([np.array([1, -3], np.float32)]).max_abs == 3
    summary = summarize_delta([np.full(4, 3e38, np.float32)])
    assert summary.finite
    assert summary.norm == pytest.approx(6e38)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 40_000, 99_999])
@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_one_bad_element_is_found(bad: float, at: int, dtype: np.dtype) -> None:
    array = np.ones(100_000, dtype)
    array[at] = bad
    summary = summarize_delta([np.ones(3, np.float32), array, np.ones(3, np.float32)])
    assert summary == DeltaSummary(math.inf, False, math.inf)
    assert look(array)[1] == math.inf  # in numpy, where nothing is compiled
