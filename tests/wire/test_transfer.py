"""Blobs between the real app, the real server and the real client, over lines that cut, cache, compress and corrupt."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import Response
from tests.fakes import sha256
from tests.http_serving import Request
from tests.wire.bench import DATA, DIGEST, PART, Bench

from crosstrain.domain.byte_ranges import ByteRanges
from crosstrain.domain.ids import Digest
from crosstrain.errors import IntegrityError, Refused
from crosstrain.partial_file import PartialFile
from crosstrain.wire import shares
from crosstrain.wire.crew import Crew, InTurn, Threads


@pytest.mark.parametrize("crew", [InTurn(), Threads()])
def test_download_puts_the_whole_blob_at_its_target(bench: Bench, crew: Crew) -> None:
    bench.download(crew=crew)
    assert bench.target.read_bytes() == DATA
    assert bench.leftovers == ["blob"]
    assert bench.seen[-1] == (len(DATA), len(DATA))
    assert sorted(bench.ranges) == ["bytes=0-899", "bytes=1800-2007", "bytes=900-1799"]


@given(cuts=st.lists(st.integers(0, PART), min_size=1, max_size=4), threads=st.booleans())
def test_download_cut_at_any_byte_continues_there(bench: Bench, cuts: list[int], threads: bool) -> None:
    bench.reset()
    bench.world.put(DATA)
    left = list(cuts)
    bench.line.cut_answer = lambda request: left.pop() if left and request.path.count("/") == 3 else None
    bench.download(crew=Threads() if threads else InTurn())
    assert bench.target.read_bytes() == DATA
    assert bench.line.sent == len(DATA)  # no byte twice


@given(spans=st.lists(st.tuples(st.integers(0, 2008), st.integers(0, 2008)).map(sorted), max_size=4))
def test_download_fetches_what_an_interrupted_one_left_out(bench: Bench, spans: list[list[int]]) -> None:
    bench.reset()
    bench.world.put(DATA)
    held = ByteRanges.of(spans)
    bench.begun(DATA, *held.spans)
    bench.download()
    assert bench.target.read_bytes() == DATA
    assert bench.line.sent == len(DATA) - held.length


@pytest.mark.parametrize("crew", [InTurn(), Threads()])
def test_download_where_ranges_are_ignored_takes_all_of_it_in_one_answer(bench: Bench, crew: Crew) -> None:
    bench.begun(DATA, (100, 700))
    bench.line.instead = lambda request: Response(DATA) if request.path.count("/") == 3 else None
    bench.download(crew=crew)
    assert bench.target.read_bytes() == DATA


def test_download_that_is_corrupted_every_time_is_given_up_with_nothing_left(bench: Bench) -> None:
    bench.line.instead = lambda request: Response(b"!" + DATA[1:]) if request.path.count("/") == 3 else None
    with pytest.raises(IntegrityError, match="also from the beginning"):
        bench.download()
    assert bench.leftovers == []


def test_download_asks_for_bytes_that_nobody_compressed(bench: Bench) -> None:
    bench.download()
    assert {request.headers["accept-encoding"] for request in bench.line.requests} == {"identity"}


def test_download_onto_damaged_bytes_starts_anew_once(bench: Bench) -> None:
    bench.begun(bytes(len(DATA)), (0, 700))
    bench.download()
    assert bench.target.read_bytes() == DATA


@pytest.mark.parametrize("rest", ["record", "bytes", "another blob's"])
def test_download_beside_leftovers_that_say_nothing_begins_anew(bench: Bench, rest: str) -> None:
    match rest:
        case "record":
            bench.begun(DATA, (0, 700))
            bench.target.with_name("blob.part").unlink()
        case "bytes":
            bench.target.with_name("blob.part").write_bytes(DATA[:700])
        case _:
            with PartialFile(bench.target, sha256(b"another"), 5000) as part:
                part.write(0, b"x" * 700)
    bench.download()
    assert bench.target.read_bytes() == DATA
    assert bench.line.sent == len(DATA)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-range": "bytes 0-9/2008"},
        {"content-range": "bytes 600-1599/2008"},
        {"content-range": "bytes 700-1599/*"},
        {"content-range": "bytes 700-1599/9999"},
        {"content-range": "bytes 700-2007/2008"},
        {"content-range": "nonsense"},
        {"content-range": "bytes 700-1599/2008", "content-encoding": "gzip"},
        {"content-range": "bytes 700-1599/2008", "transfer-encoding": "chunked"},
        {"content-range": "bytes 700-1000/2008"},
    ],
)
def test_download_range_that_was_not_asked_for_is_refused(bench: Bench, headers: dict[str, str]) -> None:
    refused_range(bench, DATA[700:1600], headers)


def test_download_range_that_is_longer_than_asked_for_is_refused(bench: Bench) -> None:
    refused_range(bench, DATA[700:1610], {"content-range": "bytes 700-1609/2008"})


def refused_range(bench: Bench, body: bytes, headers: dict[str, str]) -> None:
    """One range is missing: bytes 700 to 1599."""
    bench.begun(DATA, (0, 700), (1600, len(DATA)))
    bench.line.instead = lambda request: Response(body, 206, headers) if request.path.count("/") == 3 else None
    with pytest.raises(Refused) as caught:
        bench.download()
    assert caught.value.kind == "bad-range"
    assert bench.leftovers == ["blob.held", "blob.part"]


@pytest.mark.parametrize("whole", [False, True])
def test_download_answered_without_bytes_is_refused_and_not_asked_for_again_without_a_pause(
    bench: Bench, whole: bool
) -> None:
    gets: list[Request] = []

    def empty_handed(request: Request) -> Response | None:
        if request.path.count("/") != 3:
            return None
        gets.append(request)
        if whole and len(gets) == 1:
            return Response(DATA)  # ranges are ignored: the next request is for all of it
        return Response(b"", 204) if len(gets) < 20 else None

    bench.line.instead = empty_handed
    with pytest.raises(Refused, match="answered 204"):
        bench.download()
    assert len(gets) == 1 + whole


def test_download_takes_a_range_that_is_shorter_than_what_it_asked_for(bench: Bench) -> None:
    def stingy(request: Request) -> Response | None:
        if request.path.count("/") != 3:
            return None
        start = int(request.headers["range"].removeprefix("bytes=").partition("-")[0])
        stop = min(start + 300, len(DATA))
        return Response(DATA[start:stop], 206, {"content-range": f"bytes {start}-{stop - 1}/{len(DATA)}"})

    bench.line.instead = stingy
    bench.download()
    assert bench.target.read_bytes() == DATA


def test_download_of_a_blob_that_is_not_there_is_refused_at_once(bench: Bench) -> None:
    with pytest.raises(Refused) as caught:
        bench.client().download(Digest("e" * 64), bench.target, 100.0, bench.progress)
    assert caught.value.kind == "missing-blob"
    assert len(bench.line.requests) == 1


@pytest.mark.parametrize("crew", [InTurn(), Threads()])
def test_transfer_whose_progress_report_fails_ends_with_that(bench: Bench, crew: Crew) -> None:
    def fail(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.client(crew).download(DIGEST, bench.target, 100.0, fail)


@pytest.mark.parametrize("crew", [InTurn(), Threads()])
def test_upload_sends_the_blob_in_parts(empty: Bench, crew: Crew) -> None:
    empty.upload(crew=crew)
    assert sorted(empty.puts) == [0, 900, 1800]
    assert empty.stored == DATA
    assert empty.seen[-1] == (len(DATA), len(DATA))


def test_upload_of_what_is_there_sends_nothing(bench: Bench) -> None:
    bench.upload()
    assert bench.puts == []


@given(cuts=st.lists(st.integers(0, PART), min_size=1, max_size=4), threads=st.booleans())
def test_upload_cut_at_any_byte_continues_there(bench: Bench, cuts: list[int], threads: bool) -> None:
    bench.reset()
    left = list(cuts)
    bench.line.cut_request = lambda request: left.pop() if left and request.method == "PUT" else None
    bench.upload(crew=Threads() if threads else InTurn())
    assert bench.stored == DATA
    assert sum(request.body for request in bench.line.requests) == len(DATA)  # no byte was taken twice


@given(spans=st.lists(st.tuples(st.integers(0, 2007), st.integers(0, 2007)).map(sorted), max_size=4))
def test_upload_sends_what_the_coordinator_does_not_hold(bench: Bench, spans: list[list[int]]) -> None:
    bench.reset()
    held = ByteRanges.of(spans)
    for start, stop in held.spans:
        bench.world.objects.receive(DIGEST, start, [DATA[start:stop]], len(DATA))
    bench.upload()
    assert bench.stored == DATA
    assert sum(request.body for request in bench.line.requests) == len(DATA) - held.length


def test_upload_whose_answer_was_lost_is_not_sent_twice(empty: Bench) -> None:
    lost = [0]
    empty.line.cut_answer = lambda request: lost.pop() if lost and request.method == "PUT" else None
    empty.upload()
    assert empty.stored == DATA
    assert sum(request.body for request in empty.line.requests) == len(DATA)


@pytest.mark.parametrize("crew", [InTurn(), Threads()])
def test_upload_over_a_line_that_takes_only_small_bodies_finds_their_size(empty: Bench, crew: Crew) -> None:
    def limited(request: Request) -> Response | None:
        return Response(status_code=413) if int(request.headers.get("content-length", 0)) > 250 else None

    empty.line.instead = limited
    empty.upload(crew=crew)
    assert empty.stored == DATA


def test_upload_that_is_refused_for_any_size_is_given_up(empty: Bench) -> None:
    empty.line.instead = lambda request: Response(status_code=413) if request.method == "PUT" else None
    with pytest.raises(Refused) as caught:
        empty.upload()
    assert caught.value.status == 413


def test_upload_whose_parts_vanished_at_the_coordinator_is_sent_again(empty: Bench) -> None:
    vanish = [True]

    def lose_parts(request: Request) -> None:
        if request.query.startswith("offset=1800") and vanish:
            vanish.pop()
            empty.world.objects.delete(DIGEST)

    empty.line.instead = lose_parts
    empty.upload()
    assert empty.stored == DATA


def test_upload_whose_parts_vanish_every_time_is_given_up(empty: Bench) -> None:
    def lose_parts(request: Request) -> None:
        if request.method == "PUT":
            empty.world.objects.delete(DIGEST)

    empty.line.instead = lose_parts
    with pytest.raises(Refused, match="was sent 5 times"):
        empty.upload()
    assert len(empty.puts) <= 5 * 3


def test_upload_onto_bytes_that_are_damaged_at_the_coordinator_starts_anew(empty: Bench) -> None:
    empty.world.objects.receive(DIGEST, 0, [b"\0" * 500], len(DATA))
    empty.upload()
    assert empty.stored == DATA


def test_upload_that_was_complete_when_the_coordinator_died_is_finished_without_a_byte(empty: Bench) -> None:
    objects = empty.world.objects
    with objects.open_part(DIGEST, 0, len(DATA)) as part:
        part.write(DATA)  # and killed before `finish`
    empty.upload()
    assert empty.stored == DATA
    assert [request.body for request in empty.line.of("PUT")] == [0]


@pytest.mark.parametrize("crew", [InTurn(), Threads()])
def test_upload_of_a_file_that_is_not_its_digest_is_refused_at_once(empty: Bench, crew: Crew) -> None:
    with pytest.raises(Refused) as caught:
        empty.upload(DATA[:-1] + b"?", crew=crew)
    assert caught.value.kind == "integrity"
    assert len(empty.puts) == 3
    assert not empty.world.objects.has(DIGEST)


def test_upload_to_a_foreign_server_is_refused(bench: Bench) -> None:
    bench.line.instead = lambda _request: Response("<html>Welcome</html>")
    with pytest.raises(Refused) as caught:
        bench.upload()
    assert caught.value.kind == "not-a-coordinator"


Step = Callable[[shares.PartSize], object]


@pytest.mark.parametrize(
    ("steps", "now"),
    [
        ([lambda size: size.cut(800)], 400),
        ([lambda size: size.cut(800), lambda size: size.cut(800)], 400),
        ([lambda size: size.cut(800), lambda size: size.cut(400)], 200),
        ([lambda size: size.cut(800)] + [lambda size: size.cut(100)] * 9, 100),
        ([lambda size: size.cut(800)] + [lambda size: size.passed()] * 3, 400),
        ([lambda size: size.cut(800)] + [lambda size: size.passed()] * 4, 800),
        ([lambda size: size.too_large(800)] + [lambda size: size.passed()] * 9, 400),
    ],
)
def test_part_size_shrinks_by_cuts_and_grows_again_but_not_beyond_what_was_refused(steps: list[Step], now: int) -> None:
    size = shares.PartSize(800, 100)
    for step in steps:
        step(size)
    assert size.now == now
