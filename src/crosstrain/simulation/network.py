"""A network between sites and the coordinator that loses, delays, duplicates, reorders and corrupts.

It is an httpx transport: the production clients above it retry, time out and resume as they would anywhere. Below it the
request is decoded and given to the coordinator's operations; HTTP itself is left out.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import httpx
from pydantic import BaseModel, ValidationError

from crosstrain.coordinator import contributions, evaluation, heartbeats, leases, sessions
from crosstrain.coordinator.blobs import received, requested_range
from crosstrain.coordinator.routes import problem_of
from crosstrain.coordinator.service import Service
from crosstrain.domain.ids import Digest, SessionId, Token
from crosstrain.errors import CrosstrainError, Refused
from crosstrain.simulation.world import Actor, World
from crosstrain.wire import messages
from crosstrain.wire.line import Answer, LineBrokenError, Sink, Slice


@dataclass(frozen=True, slots=True)
class Weather:
    """How bad the network is; probabilities per request.

    Attributes:
        rtt_ms: round trip, drawn uniformly between half and one and a half times this.
        lose_request, lose_reply: the site sees a dead connection either way.
        duplicate: the request arrives a second time, some seconds later and behind others.
        corrupt: one byte of an upload is flipped on the way.
        blob_s: how much longer a request takes that is about a blob, seconds.
    """

    rtt_ms: float = 50.0
    lose_request: float = 0.0
    lose_reply: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    blob_s: float = 0.0


class CoordinatorDownError(Exception):
    """Nobody listens."""


Reply = tuple[int, bytes, dict[str, str]]
Serve = Callable[[str, str, bytes, dict[str, str]], Reply]
"""Method, path with query, body, headers -> status, body, headers; raises CoordinatorDownError."""


class SimulatedTransport(httpx.BaseTransport):
    """One site's line.

    Args:
        cut: whether the line is cut right now.
    """

    def __init__(
        self,
        world: World,
        actor: Callable[[], Actor],
        weather: Weather,
        rng: random.Random,
        serve: Serve,
        cut: Callable[[], bool],
    ) -> None:
        self._world = world
        self._actor = actor
        self._weather = weather
        self._random = rng
        self._serve = serve
        self._cut = cut

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        method, path = request.method, request.url.raw_path.decode()
        body, headers = request.read(), dict(request.headers)
        half = self._weather.rtt_ms / 2000 * (0.5 + self._random.random())
        self._actor().sleep(half + (self._weather.blob_s if "/blobs/" in path else 0.0))
        if self._cut() or self._random.random() < self._weather.lose_request:
            self._actor().sleep(5.0)
            raise httpx.ConnectTimeout("the request was lost", request=request)
        if method == "PUT" and body and self._random.random() < self._weather.corrupt:
            at = self._random.randrange(len(body))
            body = body[:at] + bytes([body[at] ^ 0x40]) + body[at + 1 :]
        try:
            status, answer, answer_headers = self._serve(method, path, body, headers)
        except CoordinatorDownError:
            raise httpx.ConnectError("connection refused", request=request) from None
        if method == "POST" and self._random.random() < self._weather.duplicate:
            self._world.after(self._random.uniform(0, 60_000), lambda: self._again(method, path, body, headers))
        self._actor().sleep(half)
        if self._cut() or self._random.random() < self._weather.lose_reply:
            self._actor().sleep(5.0)
            raise httpx.ReadTimeout("the reply was lost", request=request)
        return httpx.Response(status, content=answer, headers=answer_headers)

    def _again(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> None:
        """A copy of a request that the network kept; its reply goes nowhere."""
        try:
            self._serve(method, path, body, headers)
        except CoordinatorDownError:
            return


class SimulatedLine:
    """A site's line as blobs use it (`wire.line.Line`)."""

    def __init__(self, url: str, transport: SimulatedTransport) -> None:
        self._url, self._transport = url, transport

    def request(
        self, method: str, path: str, headers: Mapping[str, str], body: Slice | None, sink: Sink | None
    ) -> Answer:
        content = b"" if body is None else body.path.read_bytes()[body.offset : body.offset + body.length]
        try:
            response = self._transport.handle_request(
                httpx.Request(method, self._url + path, headers=dict(headers), content=content)
            )
        except httpx.HTTPError as error:
            raise LineBrokenError(str(error)) from error
        reply = Answer(response.status_code, response.reason_phrase, dict(response.headers), response.content)
        if sink is not None and sink.begin(reply):
            sink.write(memoryview(response.content))
        return reply

    def close(self) -> None:
        return


def answer(service: Service, method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply:
    """What the coordinator answers to one request, errors as problem documents."""
    try:
        if "/blobs/" in path:
            return _blob(service, method, path, body, headers)
        reply = _control(service, path, body)
        return 200, reply.model_dump_json().encode(), {}
    except CrosstrainError as error:
        problem = problem_of(error)
        return problem.status, problem.model_dump_json().encode(), {}
    except ValidationError as error:
        problem = messages.Problem(status=422, kind="malformed", detail=str(error))
        return 422, problem.model_dump_json().encode(), {}


def _control(service: Service, path: str, body: bytes) -> BaseModel:
    now = service.clock.now()
    parts = path.removeprefix("/v1/").split("/")
    match parts:
        case ["sessions"]:
            return sessions.register(service, messages.RegisterRequest.model_validate_json(body), now)
        case ["sessions", session, "beat"]:
            return heartbeats.beat(
                service, SessionId(int(session)), messages.BeatRequest.model_validate_json(body), now
            )
        case ["sessions", session, "next"]:
            request = messages.NextRequest.model_validate_json(body)
            with service.database.write() as connection:
                return leases.next_work(service, connection, SessionId(int(session)), request, now)
        case ["sessions", session, "initial"]:
            weights = Digest(messages.InitialRequest.model_validate_json(body).weights)
            return evaluation.take_initial(service, SessionId(int(session)), weights, now)
        case ["sessions", session, "evaluation"]:
            measure = messages.EvaluationRequest.model_validate_json(body)
            return evaluation.take_measure(service, SessionId(int(session)), measure, now)
        case ["sessions", session, "end"]:
            reason = messages.EndRequest.model_validate_json(body).reason
            return sessions.end(service, SessionId(int(session)), reason, now)
        case ["leases", token, "contribution"]:
            claim = messages.ContributionRequest.model_validate_json(body)
            return contributions.accept(service, Token(int(token)), claim, now)
        case ["leases", token, "release"]:
            farewell = messages.ReleaseRequest.model_validate_json(body)
            with service.database.write() as connection:
                return leases.release(service, connection, Token(int(token)), farewell, now)
    raise Refused(f"No route {path}.", kind="http", status=404)


def _blob(service: Service, method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply:
    match = re.fullmatch(r"/v1/blobs/([0-9a-f]{64})(/received)?(?:\?(.*))?", path)
    assert match is not None, path
    digest, objects = Digest(match[1]), service.objects
    query = dict(pair.split("=") for pair in (match[3] or "").split("&") if pair)
    if method == "PUT":
        objects.receive(digest, int(query["offset"]), [body], int(query["total"]))
    if method == "PUT" or match[2]:
        return 200, received(objects, digest).model_dump_json().encode(), {}
    if not objects.has(digest):
        raise Refused(f"Blob {digest[:12]} is not here.", kind="missing-blob", status=404)
    content = objects.path(digest).read_bytes()
    asked = requested_range(headers.get("range"), len(content))
    if asked is None:
        return 200, content, {}
    start, stop = asked
    return 206, content[start:stop], {"content-range": f"bytes {start}-{stop - 1}/{len(content)}"}
