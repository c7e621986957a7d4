"""With overlap nothing of an exchange is in the way of the training but what has to be: on a virtual clock, so to the second."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise

import pytest

from crosstrain.simulation.fault_run import run_schedule
from crosstrain.simulation.faults import Schedule, SiteTraits
from crosstrain.simulation.network import Reply, Weather
from crosstrain.simulation.nodes import CoordinatorNode

BAR = 0.05
"""Share of a site's time without training, where it is 0.3 without overlap."""
STEP_S = 40.0
BLOB_S = 40.0
ROUNDS = 8

Beats = dict[str, list[tuple[int, bool]]]
"""Site -> milliseconds, and whether it trained then."""


@pytest.fixture
def beats(monkeypatch: pytest.MonkeyPatch) -> Beats:
    """What the sites say of themselves."""
    heard: Beats = defaultdict(list)
    serve = CoordinatorNode.serve

    def listening(node: CoordinatorNode, method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        if path.endswith("/beat") and node.service is not None:
            heard[path].append((node.service.clock.now(), json.loads(body)["phase"] == "training"))
        return serve(node, method, path, body, headers)

    monkeypatch.setattr(CoordinatorNode, "serve", listening)
    return heard


def idle_share(beats: list[tuple[int, bool]]) -> float:
    """Of the time from the first heartbeat of a training site to the last, the share without training."""
    at = [index for index, (_, training) in enumerate(beats) if training]
    beats = beats[at[0] : at[-1] + 1]
    idle = sum(later - earlier for (earlier, training), (later, _) in pairwise(beats) if not training)
    return idle / (beats[-1][0] - beats[0][0])


def share(overlap: bool, beats: Beats) -> float:
    beats.clear()
    weather = Weather(70.0, blob_s=BLOB_S)
    sites = tuple(SiteTraits(name, 2, STEP_S, 0.0, weather) for name in ("alpha", "beta"))
    schedule = Schedule(
        seed=1, windows=ROUNDS * 2 * 2 * 10, block_windows=2, inner_steps=10, rounds=ROUNDS, epochs=1,
        checkpoint_s=1e5, cutoff_s=1e5, start_sites=2, sites=sites, faults=(), overlap=overlap,
    )  # fmt: skip
    outcome = run_schedule(schedule)
    assert outcome.violation is None and outcome.generations > ROUNDS // 2
    assert len(beats) == len(sites)
    return max(map(idle_share, beats.values()))


def test_an_exchange_of_a_third_of_a_round_is_beside_the_training(beats: Beats) -> None:
    without, with_it = share(False, beats), share(True, beats)
    assert 0.25 < without < 0.35
    assert with_it < BAR
