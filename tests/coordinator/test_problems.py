"""Malformed requests get a problem document (RFC 9457) and change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes import SiteDriver, World, build_world, weights

ROUTES = [
    "sessions",
    "sessions/{session}/beat",
    "sessions/{session}/next",
    "sessions/{session}/initial",
    "sessions/{session}/evaluation",
    "sessions/{session}/end",
    "leases/{token}/contribution",
    "leases/{token}/release",
    "placement/{site}/reports",
]

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


class Worlds:
    """A run with a live lease, used again until something changed it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made: World | None = None

    def world(self) -> World:
        if self._made is None:
            self._made = build_world(self._directory)
            (alpha,) = self._made.begin("alpha")
            alpha.work()
        return self._made

    def renew(self) -> None:
        if self._made is not None:
            self._made.database.close()
        self._made = None


@pytest.fixture
def busy(fast_tmp: Path) -> Iterator[Worlds]:
    worlds = Worlds(fast_tmp)
    yield worlds
    worlds.renew()


def valid(world: World, route: str) -> dict[str, Any]:
    """A request that would be taken, of the world's one session and lease."""
    alpha = SiteDriver(world, "alpha", session=1, holds=0)
    lease = {"token": 1, "generation": 0, "global_step": 0, "spans": [[0, 0, 4]], "ttl_ms": 10_000}
    alpha.lease = lease
    return {
        "sessions": alpha.registration(),
        "beat": {"phase": "training", "done": 1, "token": 1, "detail": "x", "rtt_ms": 1.0},
        "next": {"holds": 0, "max_blocks": 3, "resume": lease},
        "initial": {"weights": "a" * 64},
        "evaluation": {"generation": 0, "nll": 1.0, "tokens": 4},
        "end": {"reason": "walltime"},
        "contribution": alpha.claim(world.put_weights(weights(0.5), "BF16")),
        "release": {"session": 1, "reason": "walltime"},
        "reports": {"report": "report-0001", "scheduler": "slurm", "discount": 0.5, "max_queued": 3},
    }[route.rsplit("/", 1)[-1]]


def is_problem(response: Any) -> bool:
    document = response.json()
    return (
        response.headers["content-type"] == "application/problem+json"
        and document["status"] == response.status_code
        and document["type"] == f"urn:crosstrain:problem:{document['kind']}"
        and bool(document["title"])
        and bool(document["detail"])
        and bool(document["hint"])
    )


@settings(max_examples=40)
@given(st.data())
def test_request_with_one_wrong_value_is_a_problem_and_changes_nothing(busy: Worlds, data: st.DataObject) -> None:
    world = busy.world()
    route = data.draw(st.sampled_from(ROUTES))
    document = valid(world, route)
    field = data.draw(st.sampled_from(sorted(document)))
    how = data.draw(st.sampled_from(["replace", "remove", "add"]))
    if how == "replace":
        document[field] = data.draw(json_values)
    elif how == "remove":
        del document[field]
    else:
        document[data.draw(st.text(min_size=1, max_size=8).filter(lambda name: name not in document))] = 1
    before, deadlines = world.dump(), dict(world.service.presences.deadlines)
    response = world.http.post(route.format(session=1, token=1, site="lumi"), json=document)
    if response.status_code == 422:
        assert is_problem(response)
        assert (world.dump(), world.service.presences.deadlines) == (before, deadlines)
        return
    # A value that is drawn may be right by chance, and some fields have a default: then it is a request like others.
    assert how != "add"
    assert response.status_code in (200, 404, 409), response.text
    assert response.is_success or is_problem(response)
    busy.renew()


@settings(max_examples=30)
@given(st.sampled_from(ROUTES), st.binary(max_size=40) | json_values.map(lambda value: repr(value).encode()))
def test_request_that_is_no_object_of_the_protocol_is_a_problem(busy: Worlds, route: str, body: bytes) -> None:
    world = busy.world()
    before = world.dump()
    path = route.format(session=1, token=1, site="lumi")
    response = world.http.post(path, content=body, headers={"content-type": "application/json"})
    assert response.status_code in (400, 422)  # 400: not even text
    assert is_problem(response)
    assert world.dump() == before


@pytest.mark.parametrize("route", ROUTES[1:-1])
@pytest.mark.parametrize("number", ["0x1", "-1", "9999999999999999999999", "1.5", "a"])
def test_path_number_out_of_range_is_a_problem(busy: Worlds, route: str, number: str) -> None:
    world = busy.world()
    response = world.http.post(route.format(session=number, token=number), json=valid(world, route))
    assert response.status_code == 422
    assert is_problem(response)


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "nothing", 404), ("GET", "sessions", 405), ("DELETE", "status", 405)]
)
def test_unknown_path_or_method_is_a_problem(busy: Worlds, method: str, path: str, status: int) -> None:
    response = busy.world().http.request(method, path)
    assert response.status_code == status
    assert is_problem(response)


def test_every_route_of_the_control_protocol_is_covered_here(busy: Worlds) -> None:
    paths = busy.world().http.get("http://coordinator/openapi.json").json()["paths"]
    posts = {path for path, methods in paths.items() if "post" in methods and "/blobs/" not in path}
    assert posts == {f"/v1/{route}" for route in ROUTES}


def test_texts_of_the_largest_allowed_size_are_taken(fast_tmp: Path) -> None:
    world = build_world(fast_tmp)
    (alpha,) = world.begin("alpha")
    alpha.work()
    alpha.beat(detail="x" * 2000)
    alpha.release("y" * 2000)
    alpha.expect("end", reason="z" * 2000)
    assert len(world.status()["events"]) > 3
