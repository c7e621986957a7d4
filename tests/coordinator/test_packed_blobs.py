"""Runs whose weights and deltas travel packed (`wire.compress`): the same generations to the bit, recomputed from what came, and
nothing left over."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard
from tests.coordinator.foreign_blobs import assert_refused_and_the_round_goes_on, contributed
from tests.fakes import SHAPES, SiteDriver, World, build_world, delta_bytes, run_config, weights

from crosstrain.domain.block import BlockState
from crosstrain.domain.room import Room, round_bytes
from crosstrain.errors import EnvironmentFault
from crosstrain.storage.byte_planes import PackedFile
from crosstrain.storage.delta_file import Codec
from crosstrain.storage.deltas import Compress
from crosstrain.storage.durable import HEADROOM
from crosstrain.storage.object_store import LocalObjectStore

CODECS: tuple[Codec, ...] = ("bf16", "fp32", "int8", "int4")


class Disk(LocalObjectStore):
    """A store on a disk whose room the test says."""

    left = Room(None, None)

    def room(self) -> Room:
        return self.left


def build(directory: Path, codec: Codec = "bf16", compress: Compress = "planes") -> World:
    directory.mkdir(exist_ok=True)
    return build_world(directory, run_config(wire={"delta": codec, "compress": compress}))


@pytest.fixture
def world(fast_tmp: Path) -> World:
    return build(fast_tmp)


def two_rounds(world: World) -> None:
    alpha, beta = world.begin("alpha", "beta")
    for number in range(2):
        for site, value in ((alpha, 0.5), (beta, 0.25)):
            site.work()
            site.contribute(value + number)
        world.step(1000)
        alpha.holds = beta.holds = world.chain()[-1].number


def scratch(world: World) -> list[Path]:
    """Unpacked deltas on the coordinator's disk."""
    return list((world.service.work / "deltas").glob("*"))


@pytest.mark.parametrize("codec", CODECS)
def test_generations_are_the_same_as_without_packing_and_are_recomputed_to_the_bit(
    fast_tmp: Path, codec: Codec
) -> None:
    plain, packed = build(fast_tmp / "plain", codec, "none"), build(fast_tmp / "packed", codec)
    for world in (plain, packed):
        two_rounds(world)
    digests = [[(r.weights, r.master, r.momentum) for r in world.chain()] for world in (plain, packed)]
    assert digests[0] == digests[1]
    found = packed.audit(replay=True)
    assert (found.problems, found.replayed) == ((), 2)
    assert scratch(packed) == []
    assert {record.packed for record in plain.chain()} == {None}


def test_sites_are_told_where_the_packed_weights_are(world: World) -> None:
    two_rounds(world)
    record = world.chain()[-1]
    reply = world.site("gamma").ask()
    assert (reply["work"], reply["weights"], reply["packed"]) == ("adopt", record.weights, record.packed)
    with PackedFile(world.objects.path(reply["packed"]), 1 << 20) as file:
        file.unpack(world.directory / "again", durable=False)
    assert (world.directory / "again").read_bytes() == world.objects.path(record.weights).read_bytes()


def test_packed_weights_that_are_others_are_found(world: World) -> None:
    two_rounds(world)
    world.execute("UPDATE generations SET packed = (SELECT packed FROM generations WHERE number = 0) WHERE number = 2")
    assert world.audit(replay=False).problems == ()
    assert world.audit(replay=True).problems == ("generation 2 recomputed differs in packed weights",)


def test_the_recorded_digest_is_that_of_the_bytes_that_travelled(world: World) -> None:
    (alpha,) = world.begin("alpha")
    alpha.work()
    sent = delta_bytes(weights(0.5), world.directory, "bf16", "planes")
    assert contributed(alpha, sent)["accepted"]
    with world.database.read() as connection:
        (digest,) = connection.exec_driver_sql("SELECT delta FROM contributions").scalars()
    assert world.objects.path(digest).read_bytes() == sent


def test_a_restart_between_judging_and_merging_unpacks_again(world: World) -> None:
    alpha, _ = world.begin("alpha", "beta")
    alpha.work()
    alpha.contribute()
    (before,) = scratch(world)
    world.restart()
    assert not before.exists()
    world.step(300_000)
    assert world.chain()[-1].contributions == 1
    assert scratch(world) == []
    assert world.audit(replay=True).problems == ()


def test_scratch_files_that_somebody_removed_are_made_again(world: World) -> None:
    alpha, _ = world.begin("alpha", "beta")
    alpha.work()
    alpha.contribute()
    shutil.rmtree(world.service.work / "deltas")
    world.step(300_000)
    assert world.chain()[-1].contributions == 1


def test_what_is_refused_for_its_content_leaves_no_scratch_file(world: World) -> None:
    (alpha,) = world.begin("alpha")
    alpha.work()
    bad = {name: np.full(shape, np.nan) for name, shape in SHAPES.items()}
    answer = contributed(alpha, delta_bytes(bad, world.directory, "bf16", "planes"))
    assert (answer["accepted"], answer["kind"]) == (False, "not-finite")
    assert scratch(world) == []
    assert world.counts()[BlockState.AVAILABLE] == world.blocks


def _not_packed(world: World) -> bytes:
    return delta_bytes(weights(0.5), world.directory, "bf16")


def _cut(world: World) -> bytes:
    return _packed(world)[:-1]


def _of_another_model(world: World) -> bytes:
    other = {"embed": np.ones((5, 4)), "norm": np.ones(3)}
    return delta_bytes(other, world.directory, "bf16", "planes")


def _of_a_larger_model(world: World) -> bytes:
    return delta_bytes({"embed": np.ones((1000, 600))}, world.directory, "bf16", "planes")


def _of_another_codec(world: World) -> bytes:
    return delta_bytes({"embed": np.ones(3)}, world.directory, "int8", "planes")


def _wrong_digest_inside(world: World) -> bytes:
    data = _packed(world)
    return data[:24] + bytes(32) + data[56:]


def _bomb(world: World) -> bytes:
    """A frame of 64 MiB in the place of the first plane, of some hundred bytes."""
    data, frame = _packed(world), zstandard.ZstdCompressor().compress(bytes(1 << 26))
    first, second = struct.unpack("<II", data[56:64])
    return data[:56] + struct.pack("<II", len(frame), second) + frame + data[64 + first :]


def _packed(world: World) -> bytes:
    return delta_bytes(weights(0.5), world.directory, "bf16", "planes")


@pytest.mark.parametrize(
    ("blob", "kind", "reason"),
    [
        (_not_packed, "wrong-file", "expected CTPLANES"),
        (_cut, "wrong-file", "not a whole packed file"),
        (_of_another_model, "wrong-model", "expected embed (BF16 [5, 3])"),
        (_of_a_larger_model, "wrong-file", "expected one of at most"),
        (_of_another_codec, "wrong-file", "found one in codec int8"),
        (_wrong_digest_inside, "wrong-file", "of SHA-256 000000"),
        (_bomb, "wrong-file", "found 67,108,864"),
    ],
)
def test_a_blob_in_another_form_is_refused_and_the_round_goes_on(
    world: World, blob: Callable[[World], bytes], kind: str, reason: str
) -> None:
    assert_refused_and_the_round_goes_on(world, blob(world), kind, reason)
    assert scratch(world) == []


def test_a_packed_delta_in_a_run_without_packing_is_refused(fast_tmp: Path) -> None:
    world = build(fast_tmp, compress="none")
    (alpha,) = world.begin("alpha")
    alpha.work()
    assert contributed(alpha, _packed(world))["kind"] == "wrong-file"


def test_a_site_with_another_packing_is_refused_at_its_registration(world: World) -> None:
    alpha = SiteDriver(world, "alpha")
    theirs = build(world.directory / "other", compress="none")
    answer = alpha.post("sessions", **SiteDriver(theirs, "alpha").registration())
    assert (answer.status_code, answer.json()["kind"]) == (409, "spec-digest-mismatch")


def test_a_full_disk_does_not_judge_a_delta(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (alpha,) = world.begin("alpha")
    alpha.work()

    def full(*_: object) -> None:
        raise EnvironmentFault("no space", "")

    with monkeypatch.context() as disk:
        disk.setattr("crosstrain.storage.deltas.require_space", full)
        assert alpha.try_contribute().status_code == 507
    assert scratch(world) == []
    alpha.contribute()


def test_a_round_waits_for_room_to_unpack_its_deltas(fast_tmp: Path) -> None:
    for compress, work in (("none", "train"), ("planes", "wait")):
        world = build(fast_tmp / compress, compress=compress)
        world.service.objects = disk = Disk(world.directory / "objects")
        alpha, _ = world.begin("alpha", "beta")
        parameters = world.objects.size(world.chain()[0].weights) / 2
        disk.left = Room(round_bytes(parameters, "bf16", "bf16", 2, packed=False) + HEADROOM, None)
        assert alpha.ask()["work"] == work
