"""Transfers that stand still: how long they are tried again, how often, with how many bytes, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from tests.http_serving import Request
from tests.wire.bench import DATA, DIGEST, PART, Bench

from crosstrain.domain.timeouts import FIRST_RETRY_S
from crosstrain.errors import Unreachable
from crosstrain.wire.client import RETRIED_STATUS
from crosstrain.wire.crew import Crew, InTurn, Labour, Threads
from crosstrain.wire.transfer import BlobClient

QUIET = "crosstrain.wire.patience"


class CutShort(Response):
    """Answers whatever was asked with all of the blob, and breaks after 700 bytes."""

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(DATA))]})
        await send({"type": "http.response.body", "body": DATA[:700], "more_body": True})
        raise ConnectionResetError("cut by the test")


class Counting(InTurn):
    """One worker, however many are wanted."""

    most = 16

    def __init__(self) -> None:
        self.wanted: list[int] = []

    def run(self, labour: Labour, count: int) -> None:
        self.wanted.append(count)
        super().run(labour, 1)


def test_download_lines_that_break_at_once_are_waited_out_and_end_at_the_deadline(bench: Bench) -> None:
    bench.line.cut_answer = lambda request: 0 if request.path.count("/") == 3 else None
    with pytest.raises(Unreachable, match=r"not done within 60 s .IncompleteRead"):
        bench.download(60.0)
    assert len(bench.line.requests) < 20


@pytest.mark.parametrize("crew", [InTurn(), Threads()])
def test_transfer_while_the_coordinator_is_away_waits_until_the_deadline(bench: Bench, crew: Crew) -> None:
    bench.line.instead = lambda _request: Response(status_code=503)
    started = bench.clock.perf()
    with pytest.raises(Unreachable, match=r"not done within 60 s .HTTP 503"):
        bench.download(60.0, crew)
    with pytest.raises(Unreachable, match="upload was not done"):
        bench.upload(deadline_s=60.0, crew=crew)
    assert bench.clock.perf() - started == pytest.approx(120.0, abs=0.1)


def test_transfer_that_stands_still_says_why_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.line.instead = lambda _request: Response(status_code=503)
    with caplog.at_level("INFO", QUIET), pytest.raises(Unreachable):
        bench.download()
    (record,) = caplog.records
    assert record.getMessage().startswith("the download stands still, trying again: ")


def test_upload_of_which_nothing_arrives_says_why_once_and_pauses_longer_and_longer(
    empty: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Though the coordinator answers each time that it is asked what it holds."""
    empty.line.cut_request = lambda request: 0 if request.method == "PUT" else None
    with caplog.at_level("INFO", QUIET), pytest.raises(Unreachable):
        empty.upload()
    (record,) = caplog.records
    assert record.getMessage().startswith("the upload stands still, trying again: ")
    assert len(empty.line.of("PUT")) <= 12


def test_transfer_goes_on_when_the_coordinator_is_back(bench: Bench) -> None:
    answers = iter([Response(status_code=502), None, Response(status_code=507)])
    bench.line.instead = lambda _request: next(answers, None)
    bench.download()
    assert bench.target.read_bytes() == DATA


def test_transfer_to_nobody_says_so(bench: Bench) -> None:
    client = BlobClient("http://127.0.0.1:1", bench.clock, lambda: 0.5, bench.clock.wait)
    with pytest.raises(Unreachable, match="ConnectionRefusedError"):
        client.download(DIGEST, bench.target, 5.0, bench.progress)


@pytest.mark.parametrize("crew", [InTurn(), Threads()])
@pytest.mark.parametrize("status", sorted(RETRIED_STATUS))
def test_upload_that_is_refused_for_now_pauses_longer_and_longer_sends_less_and_says_why_once(
    empty: Bench, crew: Crew, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Though the coordinator answers each time that it is asked what it holds."""
    empty.line.instead = lambda request: Response(status_code=status) if request.method == "PUT" else None
    with caplog.at_level("INFO", QUIET), pytest.raises(Unreachable, match=f"within 100 s .HTTP {status}"):
        empty.upload(crew=crew)
    said = [record.getMessage() for record in caplog.records if f"HTTP {status}" in record.getMessage()]
    assert [line.partition(": ")[0] for line in said] == ["the upload stands still, trying again"]
    lengths = [int(request.headers["content-length"]) for request in empty.line.of("PUT")]
    streams = 2 if isinstance(crew, Threads) else 1
    assert len(lengths) <= 12 * streams
    assert sum(lengths) <= streams * 2 * PART + len(lengths) * 100  # halved down to the least part


def test_upload_whose_parts_are_taken_and_not_held_pauses_longer_and_longer(empty: Bench) -> None:
    nothing = b'{"received": 0, "whole": false, "ranges": []}'
    empty.line.instead = lambda request: Response(nothing) if request.method == "PUT" else None
    with pytest.raises(Unreachable, match="brought none of the bytes 0 to 899"):
        empty.upload()
    assert len(empty.puts) <= 12


def test_upload_goes_on_with_whole_parts_soon_after_a_refusal(empty: Bench) -> None:
    refusals = [Response(status_code=507)] * 3
    empty.line.instead = lambda request: refusals.pop() if refusals and request.method == "PUT" else None
    empty.upload()
    lengths = [int(request.headers["content-length"]) for request in empty.line.of("PUT")]
    assert lengths == [900, 450, 225, 112, 112, 112, 112, 224, 224, 224, 224, 448, 216]
    assert empty.stored == DATA


def test_size_that_a_proxy_takes_is_found_without_long_pauses(empty: Bench) -> None:
    def limited(request: Request) -> Response | None:
        return Response(status_code=413) if int(request.headers.get("content-length", 0)) > 250 else None

    empty.line.instead = limited
    started = empty.clock.perf()
    empty.upload()
    assert empty.clock.perf() - started < 1.0


def test_download_that_only_repeats_bytes_pauses_longer_and_longer(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.line.instead = lambda request: CutShort() if request.path.count("/") == 3 else None
    with caplog.at_level("INFO", QUIET), pytest.raises(Unreachable):
        bench.download()
    assert "the download stands still, trying again: IncompleteRead" in caplog.text
    assert len(bench.line.of("GET")) <= 12


@pytest.mark.parametrize("jitter", [0.0, 0.25, 0.99])
def test_pauses_are_spread_by_half_either_way(bench: Bench, jitter: float) -> None:
    waited: list[float] = []

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        return len(waited) == 3

    bench.line.instead = lambda _request: Response(status_code=503)
    client = BlobClient(bench.url, bench.clock, lambda: jitter, wait, crew=InTurn())
    with pytest.raises(Unreachable):
        client.download(DIGEST, bench.target, 1e6, bench.progress)
    assert waited == pytest.approx([FIRST_RETRY_S * 2**doubled * (0.5 + jitter) for doubled in range(3)])


def slow(bench: Bench, seconds: float) -> Callable[[Request], Response | None]:
    """Lets every question what is held take so long."""

    def answer(request: Request) -> Response | None:
        if request.path.endswith("/received"):
            bench.clock.advance(1000 * seconds)
        return None

    return answer


def test_upload_that_arrives_damaged_again_and_again_ends_at_its_one_deadline(empty: Bench) -> None:
    ask = slow(empty, 40)

    def damaging(request: Request) -> Response | None:
        if request.path.endswith("/received"):
            empty.world.objects.receive(DIGEST, 0, [b"\0" * 500], len(DATA))
        return ask(request)

    empty.line.instead = damaging
    started = empty.clock.perf()
    with pytest.raises(Unreachable, match="upload was not done within 100 s"):
        empty.upload()
    assert empty.clock.perf() - started <= 100 + 40


def test_download_from_the_beginning_has_what_is_left_of_the_time(bench: Bench) -> None:
    ask = slow(bench, 60)
    spoilt = Response(b"!" + DATA[1:])
    bench.line.instead = lambda request: spoilt if request.path.count("/") == 3 else ask(request)
    with pytest.raises(Unreachable, match="download was not done within 100 s"):
        bench.download()


@pytest.mark.parametrize(
    ("answers_ms", "streams"),
    [
        ([2], 2),
        ([20, 2], 2),  # the first one opened the connection
        ([20, 20], 8),
        ([90, 300], 8),
        ([150], 8),
        ([450], 8),
        ([550], 16),
        ([5000], 16),
    ],
)
@pytest.mark.parametrize("way", ["up", "down"])
def test_longer_lines_get_more_streams(bench: Bench, way: str, answers_ms: list[int], streams: int) -> None:
    left, crew = list(answers_ms), Counting()

    def late(request: Request) -> None:
        if request.path.endswith("/received"):
            bench.clock.advance(left.pop(0) if left else 5000)

    if way == "up":
        bench.reset()
    bench.line.instead = late
    if way == "up":
        bench.upload(crew=crew)
    else:
        bench.download(crew=crew)
    assert crew.wanted == [streams]
    assert left == []
    assert len([request for request in bench.line.requests if request.path.endswith("/received")]) == len(answers_ms)


def test_no_more_streams_than_the_crew_has_workers(bench: Bench) -> None:
    crew = Counting()
    crew.most = 3
    bench.line.instead = slow(bench, 5)
    bench.download(crew=crew)
    assert crew.wanted == [3]
