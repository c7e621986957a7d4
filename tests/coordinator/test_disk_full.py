"""A round whose files would not fit on the coordinator's disk does not begin, says why, and begins when they do."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.fakes import World, build_world, run_config

from crosstrain.batch.command import run
from crosstrain.domain.room import Room
from crosstrain.errors import EnvironmentFault
from crosstrain.storage.object_store import LocalObjectStore


class Disk(LocalObjectStore):
    """A store on a disk whose room the test says."""

    left = Room(None, None)

    def room(self) -> Room:
        return self.left


@pytest.mark.parametrize("full", [Room(1 << 20, None), Room(None, 3)])
def test_round_waits_for_room_and_status_says_so(world: World, full: Room) -> None:
    world.service.objects = disk = Disk(world.directory / "objects")
    alpha, beta = world.begin("alpha", "beta")
    disk.left = full
    for driver in (alpha, beta):
        reply = driver.ask()
        assert (reply["work"], reply["lease"]) == ("wait", None)
        assert reply["reason"].startswith("waiting for space at the coordinator: ")
    world.step(1000)
    assert world.status()["waiting"] == reply["reason"]
    disk.left = Room(1 << 40, 1 << 20)
    alpha.work()
    disk.left = full  # a round that has begun goes on: its files were counted
    beta.work()
    alpha.contribute()
    beta.contribute(0.25)
    world.step(1000)
    assert world.chain()[-1].contributions == 2
    assert world.status()["waiting"].startswith("waiting for a site") and alpha.ask()["work"] == "adopt"
    world.step(1000)
    assert world.status()["waiting"].startswith("waiting for space")
    assert world.audit().problems == ()


def test_full_disk_stops_the_run_cleanly_and_it_goes_on(small_disk: Path) -> None:
    world = build_world(small_disk, run_config(lease={"phase_patience_s": 10_000}))
    (alpha,) = world.begin("alpha")
    ballast = small_disk / "ballast"
    alpha.work()
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(small_disk).free - 4096)
    sent = alpha.world.http.put(f"blobs/{'a' * 64}", params={"offset": 0, "total": 1 << 16}, content=bytes(1 << 16))
    assert (sent.status_code, sent.json()["kind"]) == (507, "coordinator-fault")
    alpha.beat()
    world.step(1000)
    assert alpha.beat()["lease_alive"] is True
    ballast.unlink()
    alpha.contribute()
    world.step(1000)
    alpha.ask()
    alpha.holds = 1
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(small_disk).free - (60 << 20))
    reply = alpha.ask()
    assert reply["work"] == "wait" and "waiting for space" in reply["reason"]
    world.step(1000)
    assert world.status()["waiting"] == reply["reason"]
    ballast.unlink()
    assert alpha.ask()["work"] == "train"
    assert world.audit().problems == ()
    world.database.close()


def test_file_system_that_takes_no_more_files_is_told_from_a_full_one_and_the_run_goes_on(small_disk: Path) -> None:
    world = build_world(small_disk, run_config(lease={"phase_patience_s": 10_000}))
    (alpha,) = world.begin("alpha")
    alpha.work()
    ballast = small_disk / "ballast"
    ballast.mkdir()
    run(["mount", "-o", f"remount,nr_inodes={len(list(small_disk.rglob('*'))) + 20}", str(small_disk)], timeout=10)
    with pytest.raises(OSError, match="No space left"):
        for number in range(100):
            (ballast / str(number)).touch()
    sent = world.http.put(f"blobs/{'a' * 64}", params={"offset": 0, "total": 4}, content=b"four")
    assert (sent.status_code, sent.json()["kind"]) == (507, "coordinator-fault")
    assert "takes no more files, though it has bytes left" in sent.json()["detail"]
    shutil.rmtree(ballast)
    run(["mount", "-o", "remount,nr_inodes=1000", str(small_disk)], timeout=10)
    alpha.contribute()
    world.step(1000)
    assert world.chain()[-1].number == 1
    assert world.audit().problems == ()
    world.database.close()


def test_merge_on_a_full_disk_is_tried_again(small_disk: Path) -> None:
    world = build_world(small_disk)
    (alpha,) = world.begin("alpha")
    alpha.work()
    alpha.contribute()
    ballast = small_disk / "ballast"
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(small_disk).free)
    before = world.chain()
    with pytest.raises(EnvironmentFault):
        world.step(1000)
    assert world.chain() == before
    assert world.audit().problems == ()
    ballast.unlink()
    world.step(1000)
    assert world.chain()[-1].number == 1
    assert world.audit().problems == ()
    world.database.close()
