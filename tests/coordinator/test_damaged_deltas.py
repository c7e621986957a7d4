"""Blobs that came and were then damaged or lost, on the coordinator's disk or in its bucket: what can be merged without them is,
what can be sent or made again is, and otherwise the coordinator says what to do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import s3 as s3_server
from tests.fakes import SiteDriver, World, build_world, run_config, weights

from crosstrain.coordinator.ledger_report import ledger_report
from crosstrain.domain.block import BlockState
from crosstrain.domain.ids import Digest
from crosstrain.errors import IntegrityError
from crosstrain.storage.s3_bucket import S3Bucket
from crosstrain.storage.s3_object_store import S3ObjectStore

Damage = Callable[[bytes], bytes | None]
"""What is left of a blob's bytes; None if it is gone."""


def _gone(_content: bytes) -> None:
    return None


def _cut(content: bytes) -> bytes:
    return content[:-1]


def _emptied(_content: bytes) -> bytes:
    return b""


DAMAGE = (_gone, _cut, _emptied)


@pytest.fixture(params=["none-directory", "planes-directory", "none-bucket"])
def world(request: pytest.FixtureRequest, fast_tmp: Path) -> World:
    compress, kind = request.param.split("-")
    made = build_world(fast_tmp, run_config(wire={"compress": compress}))
    if kind == "bucket":
        server: s3_server.Server = request.getfixturevalue("s3")
        made.objects = S3ObjectStore(S3Bucket(server.place()), fast_tmp / "objects", 1 << 30)
        made.restart()
    return made


def lay(world: World, digest: Digest, content: bytes | None) -> None:
    """Changes what the store holds behind its back. A bucket's directory is lost as well; that the blob was there, the store
    remembers."""
    store = world.objects
    place = store.directory / digest[:2] / digest
    if isinstance(store, S3ObjectStore):
        key = f"{digest[:2]}/{digest}"
        shutil.rmtree(store.directory, ignore_errors=True)
        if content is None:
            store.bucket.delete(key)
        else:
            (file := world.directory / "content").write_bytes(content)
            store.bucket.put(key, file)
    elif content is None:
        place.unlink()
    else:
        place.write_bytes(content)


def spoil(world: World, digest: Digest, damage: Damage) -> None:
    lay(world, digest, damage(world.objects.path(digest).read_bytes()))


def delta_of(site: SiteDriver) -> Digest:
    """The delta that the site contributed last."""
    with site.world.database.read() as connection:
        query = "SELECT delta FROM contributions WHERE site = ? ORDER BY token DESC"
        return Digest(connection.exec_driver_sql(query, (site.name,)).scalars().all()[0])


def contributes(site: SiteDriver, damage: Damage | None = None, value: float = 0.5) -> None:
    """A phase whose delta is damaged after it was accepted; the coordinator is not the one that looked at it any more."""
    site.work()
    site.contribute(value)
    if damage is not None:
        spoil(site.world, delta_of(site), damage)
        site.world.restart()


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_round_is_merged_without_a_delta_that_cannot_be_read(world: World, damage: Damage) -> None:
    alpha, beta = world.begin("alpha", "beta")
    contributes(alpha, damage)
    contributes(beta, value=0.25)
    world.step(1000)
    assert world.chain()[-1].contributions == 1
    with world.database.read() as connection:
        query = "SELECT site, state, reason FROM leases ORDER BY token"
        (site, state, reason), (_, merged, _) = connection.exec_driver_sql(query).all()
    assert (site, state, merged) == ("alpha", "dropped", "merged")
    assert "cannot be read any more" in reason
    assert world.counts()[BlockState.MERGED] == 4 and world.counts()[BlockState.CONTRIBUTED] == 0
    assert world.audit(replay=True).problems == () == ledger_report(world.database).problems


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_round_that_has_no_other_is_opened_again(world: World, damage: Damage) -> None:
    (alpha,) = world.begin("alpha")
    contributes(alpha, damage)
    world.step(300_000)
    assert world.chain()[-1].number == 0
    assert world.status()["waiting"] == "waiting for a contribution: what the round had cannot be read any more"
    world.step(1000)
    assert world.counts()[BlockState.AVAILABLE] == world.blocks
    alpha.register()
    contributes(alpha, value=0.25)
    world.step(1000)
    assert world.chain()[-1].contributions == 1
    assert world.audit(replay=True).problems == () == ledger_report(world.database).problems


def test_what_the_site_sends_again_of_it_is_not_accepted(world: World) -> None:
    (alpha,) = world.begin("alpha")
    alpha.work()
    assert alpha.lease is not None
    claim, token = alpha.claim(world.put_delta(weights(0.5))), alpha.lease["token"]
    assert alpha.post(f"leases/{token}/contribution", **claim).json()["accepted"]
    spoil(world, delta_of(alpha), _cut)
    world.restart()
    world.step(300_000)
    answer = alpha.post(f"leases/{token}/contribution", **claim).json()
    assert (answer["accepted"], answer["kind"]) == (False, "damaged")


@pytest.mark.parametrize("damage", DAMAGE)
def test_delta_that_is_lost_before_it_is_judged_is_sent_again(world: World, damage: Damage) -> None:
    (alpha,) = world.begin("alpha")
    alpha.work()
    assert alpha.lease is not None
    delta = world.put_delta(weights(0.5))
    claim, token = alpha.claim(delta), alpha.lease["token"]
    spoil(world, delta, damage)
    answer = alpha.post(f"leases/{token}/contribution", **claim)
    assert (answer.status_code, answer.json()["kind"]) == (409, "missing-blob")
    assert world.http.get(f"blobs/{delta}/received").json()["received"] == 0
    assert world.put_delta(weights(0.5)) == delta
    assert alpha.post(f"leases/{token}/contribution", **claim).json()["accepted"]
    world.step(1000)
    assert world.audit(replay=True).problems == ()


def test_base_that_is_lost_when_a_delta_is_judged_is_no_fault_of_the_sites(world: World) -> None:
    (alpha,) = world.begin("alpha")
    alpha.work()
    assert alpha.lease is not None
    claim, token = alpha.claim(world.put_delta(weights(0.5))), alpha.lease["token"]
    spoil(world, world.chain()[0].weights, _gone)
    answer = alpha.post(f"leases/{token}/contribution", **claim)
    assert (answer.status_code, answer.json()["kind"]) == (507, "coordinator-fault")
    world.step(1000)
    assert alpha.post(f"leases/{token}/contribution", **claim).json()["accepted"]


def test_what_sites_download_is_made_again_when_it_is_lost(world: World) -> None:
    (alpha,) = world.begin("alpha")
    contributes(alpha)
    world.step(1000)
    record = world.chain()[-1]
    before = {digest: world.objects.path(digest).read_bytes() for digest in {record.weights, record.download}}
    for digest in before:
        spoil(world, digest, _gone)
        assert world.http.get(f"blobs/{digest}").json()["kind"] == "missing-blob"
    world.step(1000)
    assert {digest: world.http.get(f"blobs/{digest}").content for digest in before} == before
    assert world.audit(replay=True).problems == ()


@pytest.mark.parametrize(
    ("what", "damage"), [("master", _gone), ("master", _emptied), ("momentum", _gone), ("momentum", _cut)]
)
def test_weights_that_cannot_be_read_end_the_coordinator_with_what_to_do(
    world: World, what: str, damage: Damage
) -> None:
    (alpha,) = world.begin("alpha")
    contributes(alpha)
    world.step(1000)
    alpha.holds = 1
    contributes(alpha)
    lost = getattr(world.chain()[1], what)
    content = world.objects.path(lost).read_bytes()
    spoil(world, lost, damage)
    for _ in ("at first", "started again"):
        with pytest.raises(IntegrityError) as raised:
            world.step(1000)
        assert raised.value.message.startswith("Generation 1 cannot be followed: ")
        assert "backup" in raised.value.hint
    lay(world, lost, content)
    if isinstance(world.objects, S3ObjectStore):
        world.objects = S3ObjectStore(world.objects.bucket, world.objects.directory, 1 << 30)
    world.restart()
    world.step(1000)
    assert world.chain()[-1].number == 2
    assert world.audit(replay=True).problems == ()


def test_weights_that_are_gone_before_a_round_begins_end_it_with_what_to_do(world: World) -> None:
    world.begin("alpha")
    for digest in (world.chain()[0].weights, world.chain()[0].master):
        spoil(world, digest, _gone)
    world.http.get(f"blobs/{world.chain()[0].weights}")  # a site finds out
    with pytest.raises(IntegrityError, match="Generation 0 cannot be followed: Expected blob") as raised:
        world.step(1000)
    assert "backup" in raised.value.hint
