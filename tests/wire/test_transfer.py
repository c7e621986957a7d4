"""Blobs between the real app and the real client, over lines that cut, cache, compress and corrupt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import AppTransport, ManualClock, World, build_world, sha256

from crosstrain.domain.ids import Digest
from crosstrain.errors import IntegrityError, Refused, Unreachable
from crosstrain.wire import transfer
from crosstrain.wire.transfer import BlobClient

DATA = bytes(range(251)) * 8
DIGEST = sha256(DATA)


class Line(httpx.BaseTransport):
    """The app behind a line that a test can spoil: `spoil` sees every answer before the client does."""

    def __init__(self, app: httpx.BaseTransport) -> None:
        self._app = app
        self.requests: list[httpx.Request] = []
        self.before: Callable[[httpx.Request], httpx.Response | None] = lambda _request: None
        self.spoil: Callable[[httpx.Request, httpx.Response], httpx.Response] = lambda _request, response: response

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return self.before(request) or self.spoil(request, self._app.handle_request(request))


class CutStream(httpx.SyncByteStream):
    """The first bytes of a body, then a broken connection."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __iter__(self) -> Iterator[bytes]:
        yield self._data
        raise httpx.ReadError("connection reset")


class Bench:
    """A coordinator, a line and a client."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.world: World = build_world(directory)
        self.clock = ManualClock()
        app = self.world.http._transport
        assert isinstance(app, AppTransport)
        self.line = Line(app)
        self.client = BlobClient("http://coordinator", self.clock, lambda: 0.5, self.clock.wait, self.line)
        self.target = directory / "blob"
        self.part = directory / "blob.part"
        self.seen: list[tuple[int, int]] = []

    def progress(self, done: int, total: int) -> None:
        self.seen.append((done, total))

    def download(self, deadline_s: float = 100.0) -> None:
        self.client.download(DIGEST, self.target, deadline_s, self.progress)

    def upload(self, data: bytes = DATA, digest: Digest = DIGEST, deadline_s: float = 100.0) -> None:
        path = self.directory / "source"
        path.write_bytes(data)
        self.client.upload(path, digest, deadline_s, self.progress)

    def puts(self) -> list[int]:
        """Offsets of the parts that were sent."""
        return [int(request.url.params["offset"]) for request in self.line.requests if request.method == "PUT"]

    def reset(self) -> None:
        self.target.unlink(missing_ok=True)
        self.part.unlink(missing_ok=True)
        self.world.objects.delete(DIGEST)
        self.line.requests.clear()
        self.line.before = lambda _request: None
        self.line.spoil = lambda _request, response: response
        self.seen.clear()


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 900 bytes, so that small blobs have several."""
    monkeypatch.setattr(transfer, "PART_BYTES", 900)
    monkeypatch.setattr(transfer, "SMALLEST_PART_BYTES", 100)


@pytest.fixture
def bench(fast_tmp: Path) -> Iterator[Bench]:
    made = Bench(fast_tmp)
    made.world.put(DATA)
    yield made
    made.client.close()
    made.world.database.close()


def test_download_puts_the_whole_blob_at_its_target(bench: Bench) -> None:
    bench.download()
    assert bench.target.read_bytes() == DATA
    assert not bench.part.exists()
    assert bench.seen[-1] == (len(DATA), len(DATA))


@given(cuts=st.lists(st.integers(0, len(DATA)), min_size=1, max_size=3))
def test_download_cut_at_any_byte_continues_there(bench: Bench, cuts: list[int]) -> None:
    bench.reset()
    bench.world.put(DATA)
    left = list(cuts)

    def cut(_request: httpx.Request, response: httpx.Response) -> httpx.Response:
        if not left or response.status_code >= 400:
            return response
        kept = response.content[: left.pop(0)]
        headers = {name: value for name, value in response.headers.items() if name != "content-encoding"}
        return httpx.Response(response.status_code, headers=headers, stream=CutStream(kept))

    bench.line.spoil = cut
    bench.download()
    assert bench.target.read_bytes() == DATA
    received = sum(
        int(request.headers.get("range", "bytes=0-").removeprefix("bytes=").removesuffix("-")) == 0
        for request in bench.line.requests
    )
    # The blob is fetched from the beginning again only while nothing of it is there.
    assert received <= 1 + sum(offset == 0 for offset in cuts)


def test_download_whose_part_is_complete_needs_no_byte_more(bench: Bench) -> None:
    bench.part.write_bytes(DATA)
    bench.download()
    assert bench.target.read_bytes() == DATA
    assert [request.headers["range"] for request in bench.line.requests] == [f"bytes={len(DATA)}-"]


def test_download_from_a_server_without_ranges_starts_anew(bench: Bench) -> None:
    bench.part.write_bytes(DATA[:700])

    def ignore_range(request: httpx.Request, _response: httpx.Response) -> httpx.Response:
        assert request.headers["range"] == "bytes=700-"
        return httpx.Response(200, content=DATA)

    bench.line.spoil = ignore_range
    bench.download()
    assert bench.target.read_bytes() == DATA


def test_download_of_unknown_length_is_judged_by_its_digest(bench: Bench) -> None:
    bench.line.spoil = lambda _request, _response: httpx.Response(200, content=iter([DATA[:9], DATA[9:]]))
    bench.download()
    assert bench.target.read_bytes() == DATA


def test_download_asks_for_bytes_that_nobody_compressed(bench: Bench) -> None:
    bench.download()
    assert {request.headers["accept-encoding"] for request in bench.line.requests} == {"identity"}


@pytest.mark.parametrize("wrong", [bytes([255]) + DATA[1:700], DATA + b"more", b"x" * len(DATA)])
def test_download_onto_a_damaged_part_starts_anew_once(bench: Bench, wrong: bytes) -> None:
    bench.part.write_bytes(wrong)
    bench.download()
    assert bench.target.read_bytes() == DATA


def test_download_that_is_corrupted_every_time_is_given_up_with_nothing_left(bench: Bench) -> None:
    def corrupt(_request: httpx.Request, response: httpx.Response) -> httpx.Response:
        return httpx.Response(200, content=b"!" + response.content[1:])

    bench.line.spoil = corrupt
    with pytest.raises(IntegrityError, match="also from the beginning"):
        bench.download()
    assert len(bench.line.requests) == 2
    assert not bench.target.exists() and not bench.part.exists()


@pytest.mark.parametrize("content_range", [None, "bytes 0-9/2008", "bytes 700-2007/*", "nonsense"])
def test_download_range_that_was_not_asked_for_is_refused(bench: Bench, content_range: str | None) -> None:
    bench.part.write_bytes(DATA[:700])
    headers = {} if content_range is None else {"content-range": content_range}
    bench.line.spoil = lambda _request, _response: httpx.Response(206, headers=headers, content=DATA[700:])
    with pytest.raises(Refused) as caught:
        bench.download()
    assert caught.value.kind == "bad-range"
    assert bench.part.read_bytes() == DATA[:700]


def test_download_of_a_blob_that_is_not_there_is_refused_at_once(bench: Bench) -> None:
    with pytest.raises(Refused) as caught:
        bench.client.download(Digest("e" * 64), bench.target, 100.0, bench.progress)
    assert caught.value.kind == "missing-blob"
    assert len(bench.line.requests) == 1


def test_download_empty_answers_are_waited_out_and_end_at_the_deadline(bench: Bench) -> None:
    bench.part.write_bytes(DATA[:700])
    headers = {"content-range": f"bytes 700-2007/{len(DATA)}"}
    bench.line.spoil = lambda _request, _response: httpx.Response(206, headers=headers, content=b"")
    with pytest.raises(Unreachable, match="an empty answer"):
        bench.download(60.0)
    assert len(bench.line.requests) < 20


def test_transfer_while_the_coordinator_is_away_waits_until_the_deadline(bench: Bench) -> None:
    bench.line.before = lambda _request: httpx.Response(503)
    started = bench.clock.perf()
    with pytest.raises(Unreachable, match=r"not done within 60 s .HTTP 503"):
        bench.download(60.0)
    with pytest.raises(Unreachable, match="upload was not done"):
        bench.upload(deadline_s=60.0)
    assert bench.clock.perf() - started == pytest.approx(120.0, abs=0.1)


def test_transfer_goes_on_when_the_coordinator_is_back(bench: Bench) -> None:
    answers = iter([httpx.Response(502), httpx.Response(507)])
    bench.line.before = lambda _request: next(answers, None)
    bench.download()
    assert bench.target.read_bytes() == DATA


@pytest.mark.usefixtures("small_parts")
def test_upload_sends_the_blob_in_parts(fast_tmp: Path) -> None:
    bench = Bench(fast_tmp)
    bench.upload()
    assert bench.puts() == [0, 900, 1800]
    assert bench.world.objects.path(DIGEST).read_bytes() == DATA
    assert bench.seen[-1] == (len(DATA), len(DATA))


def test_upload_of_what_is_there_sends_nothing(bench: Bench) -> None:
    bench.upload()
    assert bench.puts() == []


@given(held=st.integers(1, len(DATA) - 1))
def test_upload_continues_from_what_the_coordinator_holds(bench: Bench, held: int) -> None:
    bench.reset()
    bench.world.objects.append(DIGEST, 0, [DATA[:held]], len(DATA))
    bench.upload()
    assert bench.puts() == [held]
    assert bench.world.objects.path(DIGEST).read_bytes() == DATA


def test_upload_whose_answer_was_lost_is_not_sent_twice(bench: Bench) -> None:
    bench.reset()
    lost = [True]

    def lose(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        if request.method == "PUT" and lost.pop():
            raise httpx.ReadError("connection reset")
        return response

    bench.line.spoil = lose
    bench.upload()
    assert bench.puts() == [0]
    assert bench.world.objects.has(DIGEST)


@pytest.mark.usefixtures("small_parts")
def test_upload_over_a_line_that_breaks_within_every_part_still_ends(fast_tmp: Path) -> None:
    bench = Bench(fast_tmp)

    def break_in_long_requests(request: httpx.Request) -> httpx.Response | None:
        if request.method == "PUT" and int(request.headers["content-length"]) > 250:
            raise httpx.WriteError("connection reset")
        return None

    bench.line.before = break_in_long_requests
    bench.upload()
    assert bench.world.objects.path(DIGEST).read_bytes() == DATA


@pytest.mark.usefixtures("small_parts")
def test_upload_whose_part_vanished_at_the_coordinator_is_sent_again(fast_tmp: Path) -> None:
    bench = Bench(fast_tmp)
    vanish = [True]

    def lose_part(request: httpx.Request) -> httpx.Response | None:
        if request.method == "PUT" and request.url.params["offset"] == "900" and vanish:
            vanish.pop()
            bench.world.objects.delete(DIGEST)
        return None

    bench.line.before = lose_part
    bench.upload()
    assert bench.puts() == [0, 900, 0, 900, 1800]
    assert bench.world.objects.path(DIGEST).read_bytes() == DATA


def test_upload_onto_a_part_that_is_damaged_at_the_coordinator_starts_anew(bench: Bench) -> None:
    bench.reset()
    bench.world.objects.append(DIGEST, 0, [b"\0" * 500], len(DATA))
    bench.upload()
    assert bench.puts() == [500, 0]
    assert bench.world.objects.path(DIGEST).read_bytes() == DATA


def test_upload_of_a_file_that_is_not_its_digest_is_refused_at_once(bench: Bench) -> None:
    bench.reset()
    with pytest.raises(Refused) as caught:
        bench.upload(DATA[:-1] + b"?")
    assert caught.value.kind == "integrity"
    assert bench.puts() == [0]
    assert not bench.world.objects.has(DIGEST)


def test_upload_to_a_foreign_server_is_refused(bench: Bench) -> None:
    bench.line.before = lambda _request: httpx.Response(200, text="<html>Welcome</html>")
    with pytest.raises(Refused) as caught:
        bench.upload()
    assert caught.value.kind == "not-a-coordinator"
