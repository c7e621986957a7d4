"""What is to outlive a power cut gets its name after its bytes are on the disk, and then the name is put there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.fakes import ManualClock, build_world, delta_bytes, sha256, weights, weights_bytes
from tests.http_serving import serving

from crosstrain.site import saved
from crosstrain.site.spool import Note, Spool
from crosstrain.storage.byte_planes import PackedFile, pack
from crosstrain.storage.object_store import LocalObjectStore
from crosstrain.storage.weights_file import Entry, WeightsWriter
from crosstrain.wire.crew import InTurn
from crosstrain.wire.mailbox import Answer, Mailbox, Moved
from crosstrain.wire.sender import MailboxBlobs
from crosstrain.wire.transfer import BlobClient

DATA = bytes(range(256)) * 8
DIGEST = sha256(DATA)


def silent(_done: int, _total: int) -> None:
    """Nobody looks."""


def upload(directory: Path) -> Path:
    LocalObjectStore(directory).receive(DIGEST, 0, [DATA], len(DATA))
    return directory / DIGEST[:2] / DIGEST


def adopt(directory: Path) -> Path:
    (made := directory / "made").write_bytes(DATA)
    LocalObjectStore(directory).adopt(made)
    return directory / DIGEST[:2] / DIGEST


def download(directory: Path) -> Path:
    world, clock = build_world(directory), ManualClock()
    world.put(DATA)
    with serving(world.app) as url:
        client = BlobClient(url, clock, lambda: 0.5, clock.wait, crew=InTurn())
        client.download(DIGEST, directory / "base", 10.0, silent)
    world.database.close()
    return directory / "base"


def take_from_a_mailbox(directory: Path) -> Path:
    mailbox, clock = Mailbox(directory / "box"), ManualClock()

    def relay(_seconds: float) -> bool:
        (mailbox.incoming / DIGEST).write_bytes(DATA)
        mailbox.box("north").put_answer(Answer(number=1, content=Moved(total=len(DATA))), "relay")
        return False

    MailboxBlobs(mailbox, "north", clock, relay).download(DIGEST, directory / "base", 10.0, silent)
    return directory / "base"


def write_weights(directory: Path) -> Path:
    with WeightsWriter(directory / "weights", [Entry("a", "F32", (2,))]) as writer:
        writer.write("a", np.zeros(2, np.float32))
    return directory / "weights"


def pack_weights(directory: Path) -> Path:
    (source := directory / "raw").write_bytes(weights_bytes(weights(1), directory))
    pack(source, directory / "packed", 4)
    return directory / "packed"


def unpack_delta(directory: Path) -> Path:
    (source := directory / "packed").write_bytes(delta_bytes(weights(1), directory, "bf16", "planes"))
    with PackedFile(source, 1 << 20) as file:
        file.unpack(directory / "raw", durable=True)
    return directory / "raw"


def write_note(directory: Path) -> Path:
    Spool(directory, "0" * 64).write(Note(spec_digest="0" * 64))
    return directory / "note.json"


def save_state(directory: Path) -> Path:
    saved.begin(directory / "checkpoint")
    saved.commit(directory / "checkpoint", {})
    return directory / "checkpoint"


@pytest.mark.parametrize(
    "write",
    [
        upload,
        adopt,
        download,
        take_from_a_mailbox,
        write_weights,
        pack_weights,
        unpack_delta,
        write_note,
        save_state,
    ],
)
def test_name_comes_after_the_bytes_and_is_put_on_the_disk_itself(
    write: Callable[[Path], Path], fast_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    renamed: dict[Path, tuple[Path, int]] = {}
    fsync, replace, rename = os.fsync, os.replace, os.rename

    def note_fsync(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink())
        fsync(handle)

    def noting(move: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
        def note_rename(source: Path, target: Path) -> None:
            renamed[Path(target)] = (Path(source), len(synced))
            move(source, target)

        return note_rename

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", noting(replace))
    monkeypatch.setattr(os, "rename", noting(rename))
    target = write(fast_tmp)
    source, before = renamed[target]
    assert target.exists()
    assert source in synced[:before]
    assert {target.parent, fast_tmp} <= set(synced[before:])
