"""Blobs that are no delta of the run, contributed by a site among others."""

from __future__ import annotations

from tests.fakes import SiteDriver, World


def contributed(site: SiteDriver, blob: bytes) -> dict[str, object]:
    """The answer to a contribution of that blob under the site's lease."""
    assert site.lease is not None
    claim = site.claim(site.world.put(blob))
    answer: dict[str, object] = site.post(f"leases/{site.lease['token']}/contribution", **claim).json()
    return answer


def assert_refused_and_the_round_goes_on(world: World, blob: bytes, kind: str, reason: str) -> None:
    """One of two sites contributes the blob: it is told what is wrong, and the other's work makes the next generation."""
    alpha, beta = world.begin("alpha", "beta")
    alpha.work()
    beta.work()
    answer = contributed(alpha, blob)
    assert (answer["kind"], reason in str(answer)) == (kind, True), answer
    assert alpha.release("refused").status_code == 200
    beta.contribute()
    world.step(60_000)
    assert world.chain()[-1].contributions == 1
    assert world.audit().problems == ()
