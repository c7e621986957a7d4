"""A coordinator and its standby: whoever does not answer is left for the other at once, and remembered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from starlette.responses import JSONResponse
from tests.fakes import ManualClock, build_world, sha256
from tests.http_serving import Spoiled, serving

from crosstrain.domain.timeouts import FIRST_RETRY_S
from crosstrain.errors import Refused, Unreachable, UsageError
from crosstrain.wire import messages
from crosstrain.wire.addresses import Addresses
from crosstrain.wire.client import ControlClient
from crosstrain.wire.listening import listen
from crosstrain.wire.transfer import BlobClient

STANDBY = {"status": 503, "kind": "standby", "detail": "This coordinator is a standby since noon."}
BOTH = ("http://north", "http://south")


class Hosts:
    """Answers for each host, which a test can change; keeps who was asked."""

    def __init__(self, **answers: Callable[[httpx.Request], httpx.Response]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.transport = httpx.MockTransport(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.host)
        return self.answers[request.url.host](request)


def serve(_request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json={"accepted": True, "reason": "well"})


def stand_by(_request: httpx.Request) -> httpx.Response:
    return httpx.Response(503, json=STANDBY)


def dead(_request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("connection refused")


def refuse(_request: httpx.Request) -> httpx.Response:
    return httpx.Response(409, json={"status": 409, "kind": "fenced-in", "detail": "No."})


def ask(hosts: Hosts, clock: ManualClock, deadline_s: float = 100.0, times: int = 1) -> str:
    control = ControlClient(BOTH, clock, lambda: 0.5, clock.wait, hosts.transport)
    reply = ""
    for _ in range(times):
        request = messages.EndRequest(reason="x")
        reply = control.post("sessions/1/end", request, messages.Accepted, deadline_s).reason
    return reply


@pytest.mark.parametrize("first", [stand_by, dead])
def test_other_address_is_tried_without_a_pause_and_kept(first: Callable[[httpx.Request], httpx.Response]) -> None:
    hosts, clock = Hosts(north=first, south=serve), ManualClock()
    assert ask(hosts, clock, times=3) == "well"
    assert hosts.asked == ["north", "south", "south", "south"]
    assert clock.now() == ManualClock().now()


def test_pause_comes_when_every_address_failed() -> None:
    clock = ManualClock()
    begun, back = clock.perf(), FIRST_RETRY_S * 1.5

    def later(request: httpx.Request) -> httpx.Response:
        return serve(request) if clock.perf() - begun >= back else dead(request)

    hosts = Hosts(north=later, south=stand_by)
    assert ask(hosts, clock) == "well"
    assert hosts.asked == ["north", "south", "north", "south", "north"]


def test_one_attempt_without_patience_asks_every_address_once_and_says_why() -> None:
    hosts = Hosts(north=dead, south=stand_by)
    with pytest.raises(Unreachable, match=r"at http://north or http://south did not answer .*standby since noon"):
        ask(hosts, ManualClock(), deadline_s=0.0)
    assert hosts.asked == ["north", "south"]


def test_refusal_is_an_answer_and_no_reason_to_ask_elsewhere() -> None:
    hosts = Hosts(north=refuse, south=serve)
    with pytest.raises(Refused, match="No"):
        ask(hosts, ManualClock())
    assert hosts.asked == ["north"]


def test_blob_goes_on_at_the_other_address_where_it_stopped(tmp_path: Path) -> None:
    world = build_world(tmp_path)
    data = bytes(range(256)) * 40
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(data)
    app, standby, clock = Spoiled(world.app), Spoiled(JSONResponse(STANDBY, 503)), ManualClock()
    with serving(app) as served, serving(standby) as waiting, listen("127.0.0.1", 0) as unused:
        dead = f"http://127.0.0.1:{unused.getsockname()[1]}"
        unused.close()
        blobs = BlobClient(f"{dead}, {waiting}/ , {served}", clock, lambda: 0.5, clock.wait)
        blobs.upload(source, sha256(data), 100.0, lambda _done, _total: None)
        blobs.download(sha256(data), target, 100.0, lambda _done, _total: None)
    assert target.read_bytes() == data
    assert [request.method for request in standby.requests] == ["GET"]  # once, and the address that answers is kept
    assert clock.now() == ManualClock().now()
    world.database.close()


@pytest.mark.parametrize("urls", ["http://north,", ("http://north", "south"), (), ",http://north"])
def test_list_with_something_that_is_no_address_is_refused(urls: str | tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="is not the address of a coordinator"):
        Addresses(urls, "/v1/", None)


def test_the_refusal_repeats_the_address_as_it_was_given() -> None:
    with pytest.raises(UsageError, match=r"^'north' is not the address"):
        Addresses("north", "/v1/", None)
