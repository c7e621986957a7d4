"""Codecs: golden values, half a step of error, exact decoding, and error feedback that loses nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosstrain.outer.encoding import (
    BF16,
    BLOCK,
    LEVELS,
    Quantized,
    QuantizedCodec,
    block_count,
    dequantize,
    part_of,
    quantize,
    step_bytes,
    widen,
)

CODECS: tuple[QuantizedCodec, ...] = ("int8", "int4")


def decoded(delta: Quantized, size: int) -> np.ndarray:
    out = np.empty(size, np.float32)
    dequantize(delta, out)
    return out


def test_int8_golden() -> None:
    values = np.array([127, -127, 0.5, 1.5, 2.5, -0.5, -1.5, 0.25, 63.4, 0], np.float32)
    delta = quantize(values, "int8")
    assert delta.scales.astype(np.float32).tolist() == [1.0]
    assert delta.steps.shape == (1, BLOCK)
    assert delta.steps[0, :10].tolist() == [127, -127, 0, 2, 2, 0, -2, 0, 63, 0]
    assert not delta.steps[0, 10:].any()


def test_int4_golden() -> None:
    values = np.array([7, -7, 0.5, 1.5, -3, 1], np.float32)
    delta = quantize(values, "int4")
    assert delta.scales.astype(np.float32).tolist() == [1.0]
    assert delta.steps.shape == (1, 128)
    assert delta.steps[0, :4].tolist() == [0x97, 0x20, 0x1D, 0]
    assert decoded(delta, 6).tolist() == [7, -7, 0, 2, -3, 1]


def test_the_scale_is_rounded_up_so_that_nothing_is_clipped() -> None:
    values = np.array([127.5, -127.5], np.float32)  # 127.5 / 127 lies between two bfloat16 values, 1 and 1.0078125
    delta = quantize(values, "int8")
    assert delta.scales.astype(np.float32).tolist() == [1.0078125]
    assert delta.steps[0, :2].tolist() == [127, -127]


def test_every_block_has_a_scale_of_its_own() -> None:
    values = np.concatenate([np.full(BLOCK, 1e-6), np.full(BLOCK, 1e6), [-3.0]]).astype(np.float32)
    for codec in CODECS:
        delta = quantize(values, codec)
        assert delta.steps.shape == (3, step_bytes(codec))
        np.testing.assert_allclose(decoded(delta, values.size), values, rtol=0.51 / LEVELS[codec])


def test_zero_and_vanishing_blocks_are_zeros() -> None:
    for codec in CODECS:
        for values in (np.zeros(300), np.full(5, 1e-45), np.full(5, 2.0**-124)):
            delta = quantize(values.astype(np.float32), codec)
            assert not delta.scales.astype(np.float32).any()
            assert not delta.steps.any()
    assert quantize(np.zeros(0, np.float32), "int8").steps.shape == (0, BLOCK)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("codec", CODECS)
def test_a_bad_element_marks_its_block(bad: float, codec: QuantizedCodec) -> None:
    values = np.ones(2 * BLOCK, np.float32)
    values[BLOCK + 7] = bad
    scales = quantize(values, codec).scales.astype(np.float32)
    assert np.isfinite(scales[0])
    assert np.isnan(scales[1])


def any_values(seed: int, size: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(size) * 2.0 ** rng.integers(-126, 100, size)).astype(np.float32)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 3 * BLOCK), st.sampled_from(CODECS))
def test_the_error_is_at_most_half_a_step(seed: int, size: int, codec: QuantizedCodec) -> None:
    values = any_values(seed, size)
    delta = quantize(values, codec)
    scale = np.repeat(delta.scales.astype(np.float64), BLOCK)[:size]
    error = np.abs(decoded(delta, size).astype(np.float64) - values)
    assert (error <= np.maximum(scale * (0.5 + 2.0**-16), 2.0**-118)).all()
    assert block_count(size) == len(delta.scales)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(CODECS))
def test_decoding_is_exact(seed: int, codec: QuantizedCodec) -> None:
    values = any_values(seed, 2 * BLOCK)
    delta = quantize(values, codec)
    levels = np.rint(decoded(delta, values.size) / np.repeat(delta.scales.astype(np.float64), BLOCK))
    exact = levels * np.repeat(delta.scales.astype(np.float64), BLOCK)
    np.testing.assert_array_equal(decoded(delta, values.size).astype(np.float64), exact)
    assert np.abs(levels).max() <= LEVELS[codec]


@pytest.mark.parametrize("codec", CODECS)
def test_error_feedback_sends_all_of_it_in_the_end(codec: QuantizedCodec) -> None:
    """What was sent over all rounds differs from what was to be sent by the last residual alone."""
    rng = np.random.default_rng(0)
    to_send, sent, plain = (np.zeros(4 * BLOCK) for _ in range(3))
    residual = np.zeros(4 * BLOCK, np.float32)
    for _ in range(50):
        delta = (rng.standard_normal(4 * BLOCK) * 1e-3 + 2e-5).astype(np.float32)
        encoded = quantize(delta + residual, codec)
        value = decoded(encoded, delta.size)
        residual = (delta + residual - value).astype(BF16).astype(np.float32)
        to_send, sent = to_send + delta, sent + value
        plain = plain + decoded(quantize(delta, codec), delta.size)
    step = float(encoded.scales.astype(np.float32).max())
    assert np.abs(to_send - sent).max() < 0.8 * step
    assert np.linalg.norm(to_send - sent) < 0.4 * np.linalg.norm(to_send - plain)


def test_parts_are_cut_at_blocks() -> None:
    values = any_values(1, 1000)
    for codec in CODECS:
        delta = quantize(values, codec)
        found = np.empty(1000, np.float32)
        for begin in range(0, 1000, 512):
            end = min(begin + 512, 1000)
            widen(part_of(delta, begin, end), found[begin:end])
        np.testing.assert_array_equal(found, decoded(delta, 1000))
        with pytest.raises(ValueError, match="multiple of 256"):
            part_of(delta, 100, 200)
    assert part_of(values, 3, 5).tolist() == values[3:5].tolist()  # type: ignore[union-attr]
