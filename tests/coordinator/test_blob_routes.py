"""Blobs over HTTP: byte ranges, resumable uploads, and every way of getting them wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import World, sha256

from crosstrain.domain.byte_ranges import ByteRanges

DATA = bytes(range(256)) * 5
DIGEST = sha256(DATA)
WHOLE = {"received": len(DATA), "whole": True, "ranges": [[0, len(DATA)]], "address": None, "direct_from": None}


@pytest.fixture
def stored(world: World) -> World:
    assert world.put(DATA) == DIGEST
    return world


def put(world: World, data: bytes, offset: int = 0, total: int = len(DATA), digest: str = DIGEST) -> httpx.Response:
    return world.http.put(f"blobs/{digest}", params={"offset": offset, "total": total}, content=data)


def received(world: World) -> int:
    return int(world.http.get(f"blobs/{DIGEST}/received").json()["received"])


def test_download_gives_the_bytes(stored: World) -> None:
    response = stored.http.get(f"blobs/{DIGEST}")
    assert (response.status_code, response.content) == (200, DATA)
    assert response.headers["content-type"] == "application/octet-stream"
    head = stored.http.head(f"blobs/{DIGEST}")
    assert (head.headers["content-length"], head.headers["accept-ranges"]) == (str(len(DATA)), "bytes")
    assert head.headers["etag"] == response.headers["etag"] == f'"{DIGEST}"'


@pytest.mark.parametrize(("first", "last"), [(0, 0), (0, 99), (100, 1279), (1279, 1279)])
def test_download_of_a_range_says_which(stored: World, first: int, last: int) -> None:
    response = stored.http.get(f"blobs/{DIGEST}", headers={"range": f"bytes={first}-{last}"})
    assert (response.status_code, response.content) == (206, DATA[first : last + 1])
    assert response.headers["content-range"] == f"bytes {first}-{last}/{len(DATA)}"


def test_download_from_an_offset_gives_the_rest(stored: World) -> None:
    response = stored.http.get(f"blobs/{DIGEST}", headers={"range": "bytes=1000-"})
    assert (response.status_code, response.content) == (206, DATA[1000:])


def test_download_from_behind_the_end_is_not_satisfiable(stored: World) -> None:
    response = stored.http.get(f"blobs/{DIGEST}", headers={"range": f"bytes={len(DATA)}-"})
    assert (response.status_code, response.json()["kind"]) == (416, "range-not-satisfiable")
    assert "within 1280 bytes" in response.json()["detail"]


@pytest.mark.parametrize("header", ["bytes=0-9,20-29", "lines=1-2", "bytes=-", "bytes=x-"])
def test_range_of_another_kind_is_ignored(stored: World, header: str) -> None:
    response = stored.http.get(f"blobs/{DIGEST}", headers={"range": header})
    assert (response.status_code, response.content) == (200, DATA)


def test_range_may_be_the_end_or_reach_behind_it(stored: World) -> None:
    for header, first in (("bytes=-80", 1200), ("bytes=-9999", 0), ("bytes=1200-9999", 1200), ("bytes=0-", 0)):
        response = stored.http.get(f"blobs/{DIGEST}", headers={"range": header})
        assert (response.status_code, response.content) == (206, DATA[first:])
        assert response.headers["content-range"] == f"bytes {first}-1279/1280"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_download_of_an_unknown_blob_is_refused(world: World, method: str) -> None:
    response = world.http.request(method, f"blobs/{'a' * 64}")
    assert response.status_code == 404
    if method == "GET":
        assert response.json()["kind"] == "missing-blob"


@pytest.mark.parametrize("name", ["abc", "A" * 64, "..%2f..%2fetc%2fpasswd", "g" * 64, "a" * 65])
def test_blob_name_that_is_no_digest_is_refused(world: World, name: str) -> None:
    for response in (world.http.get(f"blobs/{name}"), world.http.get(f"blobs/{name}/received")):
        assert response.status_code in (404, 422)
        assert response.headers["content-type"] == "application/problem+json"


@given(cuts=st.lists(st.integers(0, len(DATA)), max_size=6), order=st.randoms(use_true_random=False))
def test_upload_in_any_parts_in_any_order_makes_the_blob(world: World, cuts: list[int], order: random.Random) -> None:
    world.objects.delete(DIGEST)
    parts = list(pairwise([0, *sorted(cuts), len(DATA)]))
    order.shuffle(parts)
    came = ByteRanges()
    for start, stop in parts:
        came = came.add(start, stop)
        expected = {
            "received": came.length,
            "whole": came.length == len(DATA),
            "ranges": [list(span) for span in came.spans],
            "address": None,
            "direct_from": None,
        }
        response = put(world, DATA[start:stop], start)
        assert (response.status_code, response.json()) == (200, expected)
        assert world.http.get(f"blobs/{DIGEST}/received").json() == expected
    assert world.http.get(f"blobs/{DIGEST}").content == DATA


def test_upload_again_of_what_is_there_is_no_error(stored: World) -> None:
    assert received(stored) == len(DATA)
    assert put(stored, DATA[10:20], 10).json() == WHOLE


def test_upload_of_other_bytes_is_refused_and_starts_anew(world: World) -> None:
    wrong = bytes([DATA[0] ^ 1]) + DATA[1:]
    response = put(world, wrong)
    assert (response.status_code, response.json()["kind"]) == (409, "integrity")
    assert received(world) == 0
    assert put(world, DATA).json() == WHOLE


def test_upload_of_more_bytes_than_announced_is_refused(world: World) -> None:
    assert put(world, DATA, total=100).status_code == 409
    assert received(world) == 0


def test_part_that_is_too_large_is_refused_before_it_is_stored(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crosstrain.coordinator.blobs.LARGEST_PART", 1000)
    response = put(world, DATA)
    assert (response.status_code, response.json()["kind"]) == (413, "part-too-large")
    assert received(world) == 0


def test_part_of_unknown_length_is_limited_as_well(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crosstrain.coordinator.blobs.LARGEST_PART", 1000)

    def chunks() -> Iterator[bytes]:
        yield DATA[:700]
        yield DATA[700:]

    response = world.http.put(f"blobs/{DIGEST}", params={"offset": 0, "total": len(DATA)}, content=chunks())
    assert response.status_code == 413
    assert received(world) <= 1000


@pytest.mark.parametrize("params", [{}, {"offset": 0}, {"offset": -1, "total": 5}, {"offset": 0, "total": 2**60}])
def test_upload_without_a_place_is_malformed(world: World, params: dict[str, int]) -> None:
    response = world.http.put(f"blobs/{DIGEST}", params=params, content=DATA)
    assert (response.status_code, response.json()["kind"]) == (422, "malformed")


def test_upload_without_a_length_of_its_own_is_taken(world: World) -> None:
    response = world.http.put(
        f"blobs/{DIGEST}", params={"offset": 0, "total": len(DATA)}, content=iter([DATA[:700], DATA[700:]])
    )
    assert response.json() == WHOLE


def test_directory_takes_no_upload_past_the_coordinator(world: World) -> None:
    answer = world.http.post(f"blobs/{DIGEST}/parts", params={"total": len(DATA)})
    assert answer.json() == {"direct": False, "received": 0, "missing": []}


def test_completing_says_what_is_missing_or_that_the_blob_is_there(world: World) -> None:
    put(world, DATA[:1000])
    answer = world.http.post(f"blobs/{DIGEST}/complete", params={"total": len(DATA)})
    assert (answer.status_code, answer.json()["kind"]) == (409, "parts-missing")
    assert "1,000 of 1,280 bytes" in answer.json()["detail"]
    put(world, DATA[1000:], 1000)
    for _ in range(2):
        assert world.http.post(f"blobs/{DIGEST}/complete", params={"total": len(DATA)}).json() == WHOLE


@pytest.mark.parametrize("what", ["parts", "complete"])
@pytest.mark.parametrize(("digest", "params"), [(DIGEST, {}), (DIGEST, {"total": -1}), ("x", {"total": 5})])
def test_question_without_a_size_or_digest_is_malformed(
    world: World, what: str, digest: str, params: dict[str, int]
) -> None:
    response = world.http.post(f"blobs/{digest}/{what}", params=params)
    assert (response.status_code, response.json()["kind"]) == (422, "malformed")
