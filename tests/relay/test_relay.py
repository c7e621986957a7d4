"""A relay between senders and a server: requests, weights, and what happens when either side dies or comes late."""

from __future__ import annotations

import os
import threading

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes import ManualClock
from tests.relay.bench import DATA, DIGEST, PATIENCE_S, Bench, ask, drive, running, say, settled

from crosstrain.clock import pause
from crosstrain.domain import timeouts
from crosstrain.errors import Refused, Superseded, Unreachable
from crosstrain.relay.forward import Forwarder
from crosstrain.wire import messages
from crosstrain.wire.mailbox import Answer, Answered, Control, Letter, Moving, Nothing, Upload
from crosstrain.wire.sender import MailboxTransport, Sender


def test_a_request_goes_through_and_its_answer_comes_back(bench: Bench) -> None:
    client = bench.control()
    with running(lambda: ask(client)) as outcome:
        drive(bench, settled(outcome))
    assert outcome.value == messages.Accepted(reason="well")
    (request,) = bench.requests
    assert (request.method, str(request.url)) == ("POST", "http://coordinator/v1/sessions/1/end")
    assert request.headers["content-type"] == "application/json"
    assert client.rtt_ms > 0
    client.close()
    assert bench.mailbox.names() == ()


def test_a_refusal_of_the_coordinator_reaches_the_site_as_it_is(bench: Bench) -> None:
    problem = messages.Problem(status=410, detail="Session 1 is over.", kind="superseded")
    bench.answer = lambda _request: httpx.Response(410, json=problem.model_dump())
    with running(lambda: ask(bench.control())) as outcome:
        drive(bench, settled(outcome))
    assert isinstance(outcome.error, Superseded)
    assert outcome.error.message == "Session 1 is over."


def test_several_senders_are_served_side_by_side(bench: Bench) -> None:
    slow = threading.Event()

    def answer(request: httpx.Request) -> httpx.Response:
        if b"slow" in request.content:
            slow.wait(PATIENCE_S)
        return httpx.Response(200, json={"accepted": True, "reason": request.content.decode()})

    bench.answer = answer
    first, second = bench.control("first"), bench.control("second")
    with running(lambda: say(first, "slow")) as one:
        relay = drive(bench, lambda: len(bench.requests) == 1)
        with running(lambda: say(second, "quick")) as two:
            drive(bench, settled(two), relay)
        assert "quick" in two.value.reason and one.value is None
        slow.set()
        drive(bench, settled(one), relay)
    assert "slow" in one.value.reason


def test_a_site_that_waits_says_what_for(bench: Bench) -> None:
    transport = MailboxTransport(bench.mailbox, "north", bench.clock)
    with httpx.Client(transport=transport, base_url="http://mailbox", timeout=0.05) as client:
        with pytest.raises(httpx.ReadTimeout, match=r"no relay was ever at the mailbox .*; start .crosstrain relay"):
            client.get("/v1/status")
        assert bench.mailbox.box("north").letter() == Letter(number=2, patience_s=0, content=Nothing())
        relay = bench.relay()
        relay.step()
        relay.leave()
        with pytest.raises(httpx.ReadTimeout, match="the relay on login1 ended; start"):
            client.get("/v1/status")
    assert bench.requests == []


def test_a_coordinator_that_the_relay_does_not_reach_is_the_reason_that_site_and_relay_give(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused", request=request)

    caplog.set_level("INFO", "crosstrain.relay.forward")
    well, bench.answer = bench.answer, refuse
    client, relay = bench.control(), bench.relay()
    for _ in range(2):
        with running(lambda: client.get("status", messages.Accepted, 0.0)) as outcome:
            drive(bench, settled(outcome), relay)
        assert isinstance(outcome.error, Unreachable)
        assert "The relay does not reach http://coordinator: ConnectError: connection refused" in outcome.error.message
    bench.answer = well
    with running(lambda: ask(client)) as outcome:
        drive(bench, settled(outcome), relay)
    assert [record.message for record in caplog.records if record.name == "crosstrain.relay.forward"] == [
        "no answer from http://coordinator: ConnectError: connection refused",
        "http://coordinator answers again",
    ]


def test_addresses_that_are_tried_in_turn_share_the_senders_time() -> None:
    clock, limits = ManualClock(), list[float]()

    def hang(request: httpx.Request) -> httpx.Response:
        limits.append(request.extensions["timeout"]["read"])
        clock.advance(1000 * limits[-1])
        raise httpx.ReadTimeout("", request=request)

    addresses = ["http://one", "http://two", "http://three"]
    forwarder = Forwarder(addresses, httpx.MockTransport(hang), clock)
    forwarder.pass_on(Control(method="GET", path="/v1/status"), 20.0)
    shortest = timeouts.SHORTEST_REQUEST_S
    assert limits == pytest.approx([20.0, shortest, shortest])
    forwarder.close()


def test_a_relay_that_comes_later_answers_what_lies_there(bench: Bench) -> None:
    with running(lambda: ask(bench.control())) as outcome:
        drive(bench, lambda: bench.mailbox.names() != (), None)
        drive(bench, settled(outcome))
    assert outcome.value.accepted


def test_a_letter_whose_sender_gave_up_before_the_relay_came_is_left_alone(bench: Bench) -> None:
    box = bench.mailbox.box("gone")
    box.open()
    box.write(Letter(number=1, patience_s=10, content=Control(method="GET", path="/v1/status")))
    path = box.directory / "letter.json"
    old = path.stat().st_mtime - 10 - timeouts.SENDER_PULSE_S - 1
    os.utime(path, (old, old))
    relay = bench.relay()
    for _ in range(5):
        relay.step()
    assert bench.requests == []


@given(kills=st.lists(st.integers(0, 12), max_size=6))
@settings(max_examples=12)
def test_a_relay_killed_at_any_moments_of_requests_loses_none(bench: Bench, kills: list[int]) -> None:
    """A killed relay is one that is stepped no more; whatever it had begun may still happen, late."""
    client = bench.control(f"north-{len(bench.requests)}")
    asked = 3
    with running(lambda: [ask(client) for _ in range(asked)]) as outcome:
        for steps in kills:
            relay = bench.relay()
            for _ in range(steps):
                pause(min(0.005, relay.step()))
        drive(bench, settled(outcome))
    assert [reply.accepted for reply in outcome.value] == [True] * asked
    client.close()


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_blob_moves_by_way_of_the_mailbox(bench: Bench, way: str) -> None:
    seen: list[tuple[int, int]] = []
    with running(bench.move(way, lambda *now: seen.append(now))) as outcome:
        drive(bench, settled(outcome))
    assert outcome.error is None
    assert bench.arrived(way) == DATA
    assert seen[-1] == (len(DATA), len(DATA))
    assert list(bench.mailbox.outgoing.iterdir()) == []


def test_a_delta_that_the_coordinator_lost_is_carried_again(bench: Bench) -> None:
    relay, upload = bench.relay(), bench.move("up")
    for _ in range(2):
        with running(upload) as outcome:
            drive(bench, settled(outcome), relay)
        assert outcome.error is None
        assert bench.arrived("up") == DATA
        (bench.shelf.directory / DIGEST).unlink()


@given(kills=st.lists(st.integers(0, 12), max_size=6), way=st.sampled_from(["up", "down"]))
@settings(max_examples=16)
def test_a_relay_killed_at_any_moments_of_a_transfer_never_sends_twice(
    tmp_path_factory: pytest.TempPathFactory, kills: list[int], way: str
) -> None:
    bench = Bench(tmp_path_factory.mktemp("kills"))
    ended = threading.Event()

    def end_with_the_relay() -> None:
        if ended.is_set():
            raise SystemExit  # ends the thread of the transfer, as SIGKILL ends all threads

    bench.shelf.before_chunk = end_with_the_relay
    with running(bench.move(way)) as outcome:
        for steps in kills:
            ended.clear()
            relay = bench.relay()
            for _ in range(steps):
                pause(min(0.002, relay.step()))
            ended.set()
            for thread in threading.enumerate():
                if thread.name.startswith(("upload", "download")):
                    thread.join(PATIENCE_S)
        ended.clear()
        drive(bench, settled(outcome))
    assert outcome.error is None
    assert sum(size for _, size in bench.shelf.moved) == len(DATA)
    assert bench.arrived(way) == DATA


def test_sites_that_share_a_mailbox_fetch_a_generation_once(bench: Bench) -> None:
    bench.shelf.away.set()
    targets = [bench.directory / name for name in ("one", "two")]
    first, second = (bench.move("down", name=target.name, target=target) for target in targets)
    with running(first) as one, running(second) as two:
        relay = bench.relay()
        for _ in range(3 * len(targets)):  # both letters are taken up while nothing moves yet
            pause(min(1.0, relay.step()))
        bench.shelf.away.clear()
        drive(bench, lambda: settled(one)() and settled(two)(), relay)
    assert [target.read_bytes() for target in targets] == [DATA, DATA]
    assert sum(size for _, size in bench.shelf.moved) == len(DATA)


@pytest.mark.parametrize(
    ("refusal", "kind"), [(Refused("No room.", "free some", kind="no-room", status=507), "no-room")]
)
def test_a_refused_transfer_is_refused_at_the_site(bench: Bench, refusal: Refused, kind: str) -> None:
    bench.shelf.refusal = refusal
    with running(bench.move("up")) as outcome:
        drive(bench, settled(outcome))
    error = outcome.error
    assert isinstance(error, Refused)
    assert (error.message, error.hint, error.kind, error.status) == ("No room.", "free some", kind, 507)


def test_a_transfer_ends_at_the_sites_deadline_and_is_withdrawn(bench: Bench) -> None:
    bench.shelf.away.set()
    with running(bench.move("down", deadline_s=0.3)) as outcome:
        relay = drive(bench, settled(outcome))
    assert isinstance(outcome.error, Unreachable)
    assert "The download was not done within 0 s" in outcome.error.message
    drive(bench, lambda: not any(thread.name.startswith("download") for thread in threading.enumerate()), relay)
    letter = bench.mailbox.box("north-blobs").letter()
    assert letter is not None and isinstance(letter.content, Nothing)
    assert not bench.target.exists()


def test_a_site_whose_relay_dies_in_the_middle_of_a_transfer_says_so(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    sender = Sender(bench.mailbox, "north", clock)
    bench.relay(clock).step()
    sender.send(Upload(digest=DIGEST), 1e6)
    moving = Moving(done=5, total=10)
    bench.mailbox.box("north").put_answer(Answer(number=1, content=moving), "r1")
    for _ in range(60):
        assert sender.answer() == moving
        clock.advance(1000)
    said = [record.message for record in caplog.records if record.name == "crosstrain.wire.sender"]
    assert [sentence.partition(" for ")[0] for sentence in said] == [
        "waiting",
        "the relay on login1 has shown no sign of life",
    ]
    letter = bench.mailbox.box("north").letter()
    assert letter is not None and (letter.number, letter.renewed) == (1, 1)


def test_the_newer_of_two_relays_serves(bench: Bench) -> None:
    clock = ManualClock()
    older, newer = bench.relay(clock), bench.relay(clock)
    older.step()
    newer.step()
    clock.advance(1000 * timeouts.RELAY_PULSE_S)
    with pytest.raises(Superseded, match="A newer relay, on login1, serves the mailbox"):
        older.step()
    older.leave()
    pulse = bench.mailbox.pulse()
    assert pulse is not None and not pulse.ended
    newer.step()


def test_a_relay_that_was_stopped_writes_no_late_answer_over_that_of_the_newer(bench: Bench) -> None:
    stopped = threading.Event()

    def answer(_request: httpx.Request) -> httpx.Response:
        if len(bench.requests) == 1:
            stopped.wait(PATIENCE_S)
        return httpx.Response(200, json={})

    def answered(number: int) -> bool:
        found = box.answer()
        return found is not None and found.number == number and isinstance(found.content, Answered)

    bench.answer = answer
    box, content = bench.mailbox.box("north"), Control(method="GET", path="/v1/status")
    box.open()
    box.write(Letter(number=1, patience_s=60, content=content))
    drive(bench, lambda: len(bench.requests) == 1)
    (late,) = [thread for thread in threading.enumerate() if thread.name == "control north"]
    newer = drive(bench, lambda: answered(1))
    box.write(Letter(number=2, patience_s=60, content=content))
    drive(bench, lambda: answered(2), newer)
    stopped.set()
    late.join(PATIENCE_S)
    assert answered(2)


@pytest.mark.parametrize("content", [Control(method="GET", path="/v1/status"), Upload(digest=DIGEST)])
def test_an_answer_that_was_lost_is_given_again_when_the_letter_is_renewed(
    bench: Bench, content: Control | Upload
) -> None:
    bench.source().rename(bench.mailbox.outgoing / DIGEST)
    box = bench.mailbox.box("north")
    box.open()
    letter = Letter(number=1, patience_s=60, content=content)
    box.write(letter)

    def answered() -> bool:
        found = box.answer()
        return found is not None and found.number == 1 and not isinstance(found.content, Moving)

    relay = drive(bench, answered)
    asked = len(bench.requests)
    box.write(letter.model_copy(update={"renewed": 1}))  # its sender had not seen the answer yet
    for _ in range(5):
        pause(min(0.05, relay.step()))
    assert answered() and len(bench.requests) == asked
    box.put_answer(Answer(number=1, content=Moving()), "older")
    box.write(letter.model_copy(update={"renewed": 2}))
    drive(bench, answered, relay)
