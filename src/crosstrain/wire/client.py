"""Control messages: small JSON over short HTTPS requests, repeated until answered.

Every request of the protocol may be sent twice (G7), so every one is retried, with jittered exponential back-off, until the
caller's deadline: an outage of the coordinator or of the network costs calendar time only. `HTTPS_PROXY` is honoured.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from crosstrain.clock import Clock
from crosstrain.domain import timeouts
from crosstrain.domain.plural import counted
from crosstrain.errors import CrosstrainError, Refused, Superseded, Unreachable
from crosstrain.wire import messages
from crosstrain.wire.addresses import Addresses
from crosstrain.wire.deadline import Deadline

log = logging.getLogger(__name__)

Reply = TypeVar("Reply", bound=BaseModel)

Send = Callable[[httpx.Client, httpx.Timeout], httpx.Response]

RETRIED_STATUS = frozenset({429, 500, 502, 503, 504, 507})
"""Answers that another attempt may change; 507 is a coordinator whose disk is full and that waits for room."""
FAILED = "the coordinator failed at it, and its log says why"
_NO_ANSWER = "is it running, is the address right, does this machine need HTTPS_PROXY?"
_PROXY = "a proxy answers, the coordinator behind it does not: is it running?"
_HINTS = {
    500: "the coordinator runs, but failed: see its log, which is the standard error of `crosstrain coordinator`; "
    "nothing is lost, the request may be made again",
    502: _PROXY,
    504: _PROXY,
}
_BUSY = "the coordinator runs and says what it waits for; try again later"


class ControlClient:
    """One side of the control protocol.

    Args:
        url: address of the coordinator, for example https://coordinator.example.org; of several each is tried before a
            pause.
        jitter: numbers in [0, 1), from the caller's generator; spreads the retries of many sites.
        wait: sleeps that many seconds; returns True when the process is to stop, which ends the retries.
        transport: another way to reach the server, for tests.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        clock: Clock,
        jitter: Callable[[], float],
        wait: Callable[[float], bool],
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._clock = clock
        self._jitter = jitter
        self._wait = wait
        self._addresses = Addresses(url, "/v1/", transport)
        self.rtt_ms = 0.0
        """Newest measure of one round trip in milliseconds."""
        self.trouble = ""
        """Why the last attempt failed, empty after a success; shown while the retries go on."""

    def post(self, path: str, request: BaseModel, reply: type[Reply], deadline_s: float) -> Reply:
        """Sends until answered.

        Args:
            deadline_s: seconds after which the retries end.

        Raises:
            Refused: the coordinator said no, with its reason.
            Unreachable: no answer before the deadline, or the process is to stop.
        """
        document = request.model_dump(mode="json")
        return self._exchange(lambda http, limit: http.post(path, json=document, timeout=limit), reply, deadline_s)

    def get(self, path: str, reply: type[Reply], deadline_s: float) -> Reply:
        """Like `post`, for reading."""
        return self._exchange(lambda http, limit: http.get(path, timeout=limit), reply, deadline_s)

    def deadline(self, seconds: float) -> Deadline:
        """By this client's clock."""
        return Deadline(self._clock, seconds)

    def close(self) -> None:
        self._addresses.close()

    def _exchange(self, send: Send, reply: type[Reply], deadline_s: float) -> Reply:
        started = self._clock.perf()
        pause = timeouts.FIRST_RETRY_S
        while True:
            hint = _NO_ANSWER
            sent = self._clock.perf()
            try:
                response = send(self._addresses.http, self._limit(deadline_s - (sent - started)))
            except httpx.HTTPError as error:
                if isinstance(error, httpx.ReadTimeout):
                    # A way that is slower than this attempt was patient: the next one has to be more so.
                    self.rtt_ms = max(self.rtt_ms, 1000 * min(timeouts.REQUEST_S, self._clock.perf() - sent))
                self._fail(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
            else:
                if response.status_code not in RETRIED_STATUS:
                    self.rtt_ms = 1000 * (self._clock.perf() - sent)
                    self.trouble = ""
                    self._addresses.answered()
                    return _decode(response, reply)
                self._fail(trouble_of(response))
                hint = _HINTS.get(response.status_code, _BUSY)
            if not self._addresses.turn():
                continue
            left = deadline_s - (self._clock.perf() - started)
            if left <= 0 or self._wait(min(left, pause * (0.5 + self._jitter()))):
                raise Unreachable(
                    f"The coordinator at {self._addresses} did not answer within {deadline_s:.0f} s ({self.trouble}).",
                    hint,
                )
            pause = min(timeouts.LONGEST_RETRY_S, 2 * pause)

    def _limit(self, left_s: float) -> httpx.Timeout:
        """How long one attempt may take: a stalled connection must not outlast the caller's patience."""
        rtt_s = self.rtt_ms / 1000
        attempt = timeouts.attempt_s(left_s, rtt_s)
        return httpx.Timeout(attempt, connect=min(attempt, timeouts.CONNECT_S))

    def _fail(self, trouble: str) -> None:
        """Notes why an attempt failed, and logs what is new, so that a wait of hours has a reason."""
        if trouble != self.trouble:
            log.info("no answer from %s yet, trying again: %s", self._addresses, trouble)
        self.trouble = trouble


def _decode(response: httpx.Response, reply: type[Reply]) -> Reply:
    if response.is_success:
        try:
            return reply.model_validate_json(response.content)
        except ValidationError as error:
            raise Refused(
                f"The answer is not a {reply.__name__} of protocol {messages.PROTOCOL} "
                f"({counted(error.error_count(), 'fault')}).",
                "is this the address of a crosstrain coordinator, and of the same version?",
                kind="bad-reply",
            ) from error
    raise refusal_of(response.status_code, response.content)


def trouble_of(response: httpx.Response) -> str:
    """As `trouble`."""
    return trouble(response.status_code, response.reason_phrase, response.content)


def trouble(status: int, reason: str, body: bytes) -> str:
    """What an answer of `RETRIED_STATUS` says, for people: a standby for example says what it waits for."""
    try:
        detail = messages.Problem.model_validate_json(body).detail
    except ValidationError:
        detail = FAILED if status == 500 else ""
    return f"HTTP {status} {reason}" + (f": {detail}" if detail else "")


def refusal_of(status: int, body: bytes) -> CrosstrainError:
    """The error that a problem document stands for."""
    try:
        problem = messages.Problem.model_validate_json(body)
    except ValidationError:
        return Refused(
            f"The server answered {status} without a problem document: {body[:200].decode(errors='replace')!r}.",
            "is this the address of a crosstrain coordinator?",
            kind="not-a-coordinator",
            status=status,
        )
    if problem.kind in ("superseded", "fenced"):
        return Superseded(problem.detail, problem.hint)
    return Refused(problem.detail or problem.title, problem.hint, kind=problem.kind, status=status)
