"""A site's delta as it travels with `wire.compress`: the same bytes inside, and nothing left of a killed session."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.site.bench import plan

from crosstrain.domain.phase import PhaseProgress
from crosstrain.site.commands import perform
from crosstrain.site.counting import CountingTrainer
from crosstrain.site.spool import Spool
from crosstrain.storage.byte_planes import PackedFile
from crosstrain.storage.delta_file import ELEMENT_BYTES, Codec
from crosstrain.storage.object_store import digest_file


def never(_: PhaseProgress) -> bool:
    return False


@pytest.mark.parametrize("codec", ELEMENT_BYTES)
def test_the_packed_delta_holds_the_delta(tmp_path: Path, codec: Codec) -> None:
    trainer = CountingTrainer(16)
    base = tmp_path / "base"
    perform(trainer, {"op": "initialise", "seed": 1, "path": str(base)}, never, True)
    perform(trainer, {"op": "load", "path": str(base), "generation": 0}, never, True)
    trainer.run(plan((0, 8), lr=1e-3), never)
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    command = {"op": "export", "base": str(base), "codec": codec}
    perform(trainer, {**command, "path": str(plain), "compress": "none"}, never, True)
    answer = perform(trainer, {**command, "path": str(packed), "compress": "planes"}, never, True)
    assert answer["bytes"] == packed.stat().st_size
    assert answer["digest"] == digest_file(packed)
    with PackedFile(packed, plain.stat().st_size) as file:
        file.unpack(tmp_path / "again", durable=True)
    assert (tmp_path / "again").read_bytes() == plain.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"base", "plain", "packed", "again"}


def test_a_session_removes_what_a_killed_one_was_writing(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "spec")
    spool.delta.write_bytes(b"finished, and to be sent")
    for left in ("delta.part", "delta.unpacked", "delta.unpacked.part"):
        (tmp_path / left).write_bytes(b"half")
    assert {path.name for path in Spool(tmp_path, "spec").directory.iterdir()} == {"delta"}
