"""Weights that are not at the coordinator any more when a site comes for them: it asks what is current, and goes on with that."""

from __future__ import annotations

from collections import Counter

import pytest

from crosstrain.simulation.fault_run import run_schedule
from crosstrain.simulation.faults import Schedule, SiteTraits
from crosstrain.simulation.network import Reply, Weather
from crosstrain.simulation.nodes import CoordinatorNode
from crosstrain.storage import run_store
from crosstrain.wire import messages

ASKED = 3
"""How often a site comes in vain for the weights of each generation."""


@pytest.fixture(autouse=True)
def vain(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Of every generation's weights the coordinator says the first times that it has none; counts that, and sessions."""
    asked: Counter[str] = Counter()
    serve = CoordinatorNode.serve

    def without(node: CoordinatorNode, method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        asked["sessions"] += path == "/v1/sessions"
        if node.service is not None and method == "GET" and path.endswith("/received"):
            digest = path.split("/")[3]
            with node.service.database.read() as connection:
                weights = {record.download for record in run_store.generations(connection)}
            if digest in weights and asked[digest] < ASKED:
                asked[digest] += 1
                return 200, messages.Received(received=0, whole=False, ranges=()).model_dump_json().encode(), {}
        return serve(node, method, path, body, headers)

    monkeypatch.setattr(CoordinatorNode, "serve", without)
    return asked


@pytest.mark.parametrize("overlap", [False, True])
def test_site_that_comes_in_vain_for_weights_asks_again(overlap: bool, vain: Counter[str]) -> None:
    site = SiteTraits("alpha", 2, 2.0, 0.0, Weather(3.0))
    schedule = Schedule(
        seed=1, windows=60, block_windows=2, inner_steps=4, rounds=4, epochs=3, checkpoint_s=1000.0, cutoff_s=3000.0,
        start_sites=1, sites=(site,), faults=(), overlap=overlap,
    )  # fmt: skip
    outcome = run_schedule(schedule)
    assert (outcome.violation, outcome.generations) == (None, 5)
    assert vain.pop("sessions") == 1
    assert len(vain) >= 4 and set(vain.values()) == {ASKED}
