"""Runs with quantised deltas: merged exactly, recomputed to the bit, and refused with the reason when they are not in order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.coordinator.foreign_blobs import assert_refused_and_the_round_goes_on, contributed
from tests.fakes import (
    SHAPES,
    World,
    build_world,
    delta_bytes,
    read_weights,
    run_config,
    weights,
    weights_bytes,
)

from crosstrain.domain.block import BlockState
from crosstrain.outer.encoding import BF16, QuantizedCodec, dequantize, quantize
from crosstrain.storage.delta_file import Codec
from crosstrain.storage.weights_file import Entry, WeightsWriter

CODECS: tuple[QuantizedCodec, ...] = ("int8", "int4")


@pytest.fixture(params=CODECS)
def codec(request: pytest.FixtureRequest) -> QuantizedCodec:
    codec: QuantizedCodec = request.param
    return codec


@pytest.fixture
def world(fast_tmp: Path, codec: QuantizedCodec) -> World:
    return build_world(fast_tmp, run_config(wire={"delta": codec}, outer={"solo_eta": 1.0, "solo_beta": 0.0}))


def test_rounds_of_quantised_deltas_are_recomputed_to_the_bit(world: World) -> None:
    alpha, beta = world.begin("alpha", "beta")
    for number in range(2):
        for site, value in ((alpha, 0.5), (beta, 0.25)):
            site.work()
            site.contribute(value + number)
        world.step(1000)
        alpha.holds = beta.holds = world.chain()[-1].number
    found = world.audit(replay=True)
    assert (found.problems, found.replayed) == ((), 2)


def test_a_single_delta_goes_into_the_weights_as_it_was_decoded(world: World, codec: QuantizedCodec) -> None:
    (alpha,) = world.begin("alpha")
    before = read_weights(world.objects.path(world.chain()[0].master))
    alpha.work()
    alpha.contribute(0.5)
    world.step(1000)
    after = read_weights(world.objects.path(world.chain()[1].master))
    for name, tensor in weights(0.5).items():
        value = np.empty(tensor.size, np.float32)
        dequantize(quantize(tensor.astype(np.float32).reshape(-1), codec), value)
        np.testing.assert_array_equal(after[name], before[name] + value.reshape(tensor.shape))


def written(world: World, entries: dict[str, np.ndarray], metadata: dict[str, str]) -> bytes:
    path = world.directory / "made.safetensors"
    kinds = {np.dtype(np.int8): "I8", np.dtype(np.uint8): "U8", BF16: "BF16", np.dtype(np.float32): "F32"}
    described = [Entry(name, kinds[array.dtype], array.shape) for name, array in entries.items()]  # type: ignore[arg-type]
    with WeightsWriter(path, described, metadata) as writer:
        for name, array in entries.items():
            writer.write(name, array)
    return path.read_bytes()


def parts(codec: QuantizedCodec) -> dict[str, np.ndarray]:
    """The tensors of a sound delta's file."""
    found = {}
    for name, tensor in weights(0.5).items():
        encoded = quantize(tensor.astype(np.float32).reshape(-1), codec)
        found |= {f"{name}.q": encoded.steps, f"{name}.scale": encoded.scales}
    return found


def _named(codec: str, version: str = "1") -> dict[str, str]:
    return {"codec": codec, "codec_version": version}


def _bfloat16(world: World, _codec: QuantizedCodec) -> bytes:
    return weights_bytes(weights(0.5), world.directory, "BF16")


def _other_codec(world: World, codec: QuantizedCodec) -> bytes:
    other: Codec = "int4" if codec == "int8" else "int8"
    return delta_bytes(weights(0.5), world.directory, other)


def _later_version(world: World, codec: QuantizedCodec) -> bytes:
    return written(world, parts(codec), _named(codec, "2"))


def _no_scales(world: World, codec: QuantizedCodec) -> bytes:
    return written(world, {n: a for n, a in parts(codec).items() if n != "embed.scale"}, _named(codec))


def _fewer_blocks(world: World, codec: QuantizedCodec) -> bytes:
    return written(world, {n: a[:0] if n == "norm.q" else a for n, a in parts(codec).items()}, _named(codec))


def _wide_scales(world: World, codec: QuantizedCodec) -> bytes:
    wide = {n: a.astype(np.float32) if n.endswith("scale") else a for n, a in parts(codec).items()}
    return written(world, wide, _named(codec))


@pytest.mark.parametrize(
    ("blob", "kind", "reason"),
    [
        (_bfloat16, "wrong-file", "no quantised codec"),
        (_other_codec, "wrong-file", "expected a delta in codec int"),
        (_later_version, "wrong-file", "version 2"),
        (_no_scales, "wrong-model", "expected embed.scale"),
        (_fewer_blocks, "wrong-model", "expected norm.q"),
        (_wide_scales, "wrong-model", "found embed.scale (F32"),
    ],
)
def test_a_blob_in_another_form_is_refused_and_the_round_goes_on(
    world: World, codec: QuantizedCodec, blob: Callable[[World, QuantizedCodec], bytes], kind: str, reason: str
) -> None:
    assert_refused_and_the_round_goes_on(world, blob(world, codec), kind, reason)


@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf])
def test_a_scale_that_is_not_finite_is_refused_and_the_blocks_return(
    world: World, codec: QuantizedCodec, scale: float
) -> None:
    (alpha,) = world.begin("alpha")
    alpha.work()
    tensors = parts(codec)
    tensors["norm.scale"] = np.array([scale], np.float32).astype(BF16)
    answer = contributed(alpha, written(world, tensors, _named(codec)))
    assert (answer["accepted"], answer["kind"]) == (False, "not-finite")
    assert world.counts()[BlockState.AVAILABLE] == world.blocks


def test_a_quantised_delta_in_a_run_without_codec_is_refused(fast_tmp: Path, codec: QuantizedCodec) -> None:
    world = build_world(fast_tmp, run_config())
    (alpha,) = world.begin("alpha")
    alpha.work()
    answer = contributed(alpha, delta_bytes({name: np.ones(shape) for name, shape in SHAPES.items()}, fast_tmp, codec))
    assert answer["kind"] == "wrong-file"
