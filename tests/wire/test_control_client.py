"""Control requests are repeated until answered; what cannot be helped by repeating is said at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import httpx
import pytest
from tests.fakes import ManualClock

from crosstrain.domain.ids import SessionId, Token
from crosstrain.domain.timeouts import FIRST_RETRY_S, LONGEST_RETRY_S
from crosstrain.errors import Refused, Superseded, Unreachable, UsageError
from crosstrain.wire import messages
from crosstrain.wire.client import ControlClient
from crosstrain.wire.site_api import SiteApi

ACCEPTED = {"accepted": True, "reason": "well"}
Answer = Callable[[httpx.Request], httpx.Response]


def client(clock: ManualClock, answer: Answer, wait: Callable[[float], bool] | None = None) -> ControlClient:
    transport = httpx.MockTransport(answer)
    return ControlClient("http://coordinator/", clock, lambda: 0.5, wait or clock.wait, transport)


def script(*steps: httpx.Response | Exception) -> Answer:
    """Gives the steps one after the other, the last one for ever."""
    left: Iterator[httpx.Response | Exception] = iter(steps)
    last = steps[-1]

    def answer(_request: httpx.Request) -> httpx.Response:
        step = next(left, last)
        if isinstance(step, Exception):
            raise step
        return httpx.Response(step.status_code, content=step.content, headers=step.headers)

    return answer


def problem(status: int, kind: str) -> httpx.Response:
    document = {
        "type": "about:blank",
        "title": kind,
        "status": status,
        "detail": "It is so.",
        "kind": kind,
        "hint": "h",
    }
    return httpx.Response(status, json=document, headers={"content-type": "application/problem+json"})


def ask(control: ControlClient, deadline_s: float = 1000.0) -> messages.Accepted:
    return control.post("sessions/1/end", messages.EndRequest(reason="x"), messages.Accepted, deadline_s)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 507])
def test_request_answered_later_is_repeated_until_then(status: int) -> None:
    clock = ManualClock()
    control = client(
        clock, script(httpx.Response(status), httpx.ConnectError("refused"), httpx.Response(200, json=ACCEPTED))
    )
    assert ask(control).reason == "well"
    assert clock.perf() - ManualClock().perf() == pytest.approx(FIRST_RETRY_S + 2 * FIRST_RETRY_S)
    assert control.trouble == ""


def test_request_pauses_grow_to_their_limit_and_end_at_the_deadline() -> None:
    clock, pauses, troubles = ManualClock(), [], []

    def wait(seconds: float) -> bool:
        pauses.append(seconds)
        troubles.append(control.trouble)
        return clock.wait(seconds)

    control = client(clock, script(httpx.ConnectTimeout("slow")), wait)
    with pytest.raises(Unreachable, match=r"did not answer within 100 s .ConnectTimeout: slow.") as caught:
        ask(control, 100.0)
    assert "HTTPS_PROXY" in caught.value.hint
    assert pauses[:3] == [FIRST_RETRY_S, 2 * FIRST_RETRY_S, 4 * FIRST_RETRY_S]
    assert max(pauses) == LONGEST_RETRY_S
    assert sum(pauses) == pytest.approx(100.0)
    assert set(troubles) == {"ConnectTimeout: slow"}


@pytest.mark.parametrize("jitter", [0.0, 0.25, 0.99])
def test_pauses_of_many_sites_are_spread_by_half_either_way(jitter: float) -> None:
    pauses: list[float] = []

    def wait(seconds: float) -> bool:
        pauses.append(seconds)
        return len(pauses) == 4

    away = httpx.MockTransport(script(httpx.ConnectError("")))
    with pytest.raises(Unreachable):
        ask(ControlClient("http://coordinator/", ManualClock(), lambda: jitter, wait, away))
    assert pauses == pytest.approx([FIRST_RETRY_S * 2**doubled * (0.5 + jitter) for doubled in range(4)])


@pytest.mark.parametrize(
    ("response", "said", "hint"),
    [
        (httpx.Response(500), "HTTP 500 Internal Server Error: the coordinator failed at it", "see its log"),
        (httpx.Response(502), "HTTP 502 Bad Gateway", "a proxy answers"),
        (httpx.Response(503), "HTTP 503 Service Unavailable", "try again later"),
    ],
)
def test_an_answer_that_is_none_is_not_taken_for_a_wrong_address(
    response: httpx.Response, said: str, hint: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"), pytest.raises(Unreachable, match="did not answer within 100 s") as caught:
        ask(client(ManualClock(), script(response)), 100.0)
    assert said in caught.value.message and hint in caught.value.hint and "HTTPS_PROXY" not in caught.value.hint
    assert "trying again" in caplog.text and said in caplog.text


def test_request_ends_at_once_when_the_process_is_to_stop() -> None:
    control = client(ManualClock(), script(httpx.ConnectError("")), lambda _seconds: True)
    with pytest.raises(Unreachable, match=r"\(ConnectError\)"):
        ask(control)


def test_refusal_comes_with_kind_reason_hint_and_status() -> None:
    with pytest.raises(Refused) as caught:
        ask(client(ManualClock(), script(problem(409, "seed-mismatch"))))
    error = caught.value
    assert (error.kind, error.message, error.hint, error.status) == ("seed-mismatch", "It is so.", "h", 409)


def test_superseded_session_is_told_so() -> None:
    with pytest.raises(Superseded, match="It is so"):
        ask(client(ManualClock(), script(problem(410, "superseded"))))


def test_superseded_coordinator_is_tried_again_until_its_successor_answers() -> None:
    answers = script(problem(503, "coordinator-superseded"), httpx.Response(200, json=ACCEPTED))
    assert ask(client(ManualClock(), answers)).accepted


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (httpx.Response(200, text="<html>Welcome</html>"), "bad-reply"),
        (httpx.Response(200, json={"accepted": True, "reason": "", "more": 1}), "bad-reply"),
        (httpx.Response(200, content=b""), "bad-reply"),
        (httpx.Response(404, text="<html>Not Found</html>"), "not-a-coordinator"),
        (httpx.Response(301, headers={"location": "http://elsewhere/"}), "not-a-coordinator"),
        (httpx.Response(403, content=b"\xff\xfe"), "not-a-coordinator"),
        (httpx.Response(400, json=["a", "list"]), "not-a-coordinator"),
    ],
)
def test_foreign_server_is_recognised_and_not_asked_again(response: httpx.Response, kind: str) -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return script(response)(request)

    with pytest.raises(Refused) as caught:
        ask(client(ManualClock(), answer))
    assert caught.value.kind == kind
    assert "is this the address of a crosstrain coordinator" in caught.value.hint
    assert len(asked) == 1


@pytest.mark.parametrize(
    "url",
    [
        "coordinator:8470",
        "localhost",
        "ftp://host",
        "http://",
        "http://[::1",
        "",
        "//x",
        "http://host:99999",
        "http://host:0",
        "http://two words/",
        "http://host/?run=1",
        "http://host/#run",
        "http://xn--a",
    ],
)
def test_address_that_is_none_is_refused_before_anything_is_sent(url: str) -> None:
    clock = ManualClock()
    with pytest.raises(UsageError, match="is not the address of a coordinator"):
        ControlClient(url, clock, lambda: 0.5, clock.wait)


def test_round_trip_is_measured_over_the_answered_attempt_only() -> None:
    clock = ManualClock()
    answers = script(httpx.ReadTimeout("slow"), httpx.Response(200, json=ACCEPTED))

    def slowly(request: httpx.Request) -> httpx.Response:
        clock.advance(40)
        return answers(request)

    control = client(clock, slowly)
    ask(control)
    assert control.rtt_ms == pytest.approx(40.0)


def test_an_attempt_that_was_given_up_makes_the_next_one_more_patient() -> None:
    clock = ManualClock()
    given: list[float] = []

    def slowly(request: httpx.Request) -> httpx.Response:
        limit = request.extensions["timeout"]["read"]
        given.append(limit)
        clock.advance(1000 * min(limit, 12))
        if limit < 12:
            raise httpx.ReadTimeout("slow", request=request)
        return httpx.Response(200, json=ACCEPTED)

    control = client(clock, slowly)
    for _ in range(2):  # as heartbeats come, each with little patience of its own
        with pytest.raises(Unreachable):
            ask(control, deadline_s=1.0)
    ask(control, deadline_s=1.0)
    assert given == [5.0, 10.0, 20.0]
    assert control.rtt_ms == pytest.approx(12_000)


def test_site_api_sends_every_request_to_its_path() -> None:
    seen: list[tuple[str, str]] = []
    replies = {
        "beat": messages.BeatReply(lease_alive=True, drain=False, reason="", generation=0, heartbeat_ms=5),
        "next": messages.NextReply(work="wait", reason="because"),
        "contribution": messages.ContributionReply(accepted=True, kind="accepted", reason=""),
        "sessions": messages.RegisterReply(session=1, run="run", kept=(), heartbeat_ms=5),
    }

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append((request.url.path, json.loads(request.content).get("reason", "")))
        reply = replies.get(request.url.path.rsplit("/", 1)[-1], messages.Accepted())
        return httpx.Response(200, content=reply.model_dump_json())

    clock = ManualClock()
    api = SiteApi(client(clock, answer), 60.0)
    session, token, digest = SessionId(4), Token(9), "a" * 64
    identity = messages.Fingerprint(
        spec_digest=digest,
        seed=0,
        windows=1,
        block_windows=1,
        seq_len=1,
        tokenizer_sha256=digest,
        corpus_sha256=digest,
    )
    api.register(
        messages.RegisterRequest(
            protocol=1, version="0", site="alpha", ranks=1, windows_per_step=1, fingerprint=identity
        ),
        5.0,
    )
    api.beat(session, messages.BeatRequest.model_validate({"phase": "training"}), 5.0)
    api.next_work(session, messages.NextRequest(holds=None))
    api.initial(session, messages.InitialRequest(weights=digest))
    api.evaluation(session, messages.EvaluationRequest(generation=0, nll=1.0, tokens=1))
    api.release(token, session, "no time")
    api.end(session, "walltime", 5.0)
    api.contribute(
        token,
        messages.ContributionRequest(
            session=4,
            generation=0,
            blocks=1,
            windows=1,
            tokens=1,
            steps=1,
            delta=digest,
            windows_digest="1:" + "0" * 32,
        ),
    )
    assert seen == [
        ("/v1/sessions", ""),
        ("/v1/sessions/4/beat", ""),
        ("/v1/sessions/4/next", ""),
        ("/v1/sessions/4/initial", ""),
        ("/v1/sessions/4/evaluation", ""),
        ("/v1/leases/9/release", "no time"),
        ("/v1/sessions/4/end", "walltime"),
        ("/v1/leases/9/contribution", ""),
    ]
    assert (api.rtt_ms, api.trouble) == (0.0, "")
    api.close()
