"""Control requests from a mailbox to the coordinator: one attempt each, because the sender repeats them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import httpx

from crosstrain.clock import Clock, SystemClock
from crosstrain.domain import timeouts
from crosstrain.wire.addresses import Addresses
from crosstrain.wire.client import RETRIED_STATUS, trouble_of
from crosstrain.wire.deadline import Deadline
from crosstrain.wire.mailbox import Answered, Control
from crosstrain.wire.messages import Problem

log = logging.getLogger(__name__)


class Forwarder:
    """Passes requests on. May be used by several threads.

    Attributes:
        trouble: why the newest attempt failed, empty after a success.

    Raises:
        UsageError: one of `urls` is no address.
    """

    def __init__(
        self, urls: str | Sequence[str], transport: httpx.BaseTransport | None = None, clock: Clock | None = None
    ) -> None:
        self._addresses = Addresses(urls, "", transport)
        self._clock = clock or SystemClock()
        self.trouble = ""

    def __str__(self) -> str:
        return str(self._addresses)

    def pass_on(self, control: Control, patience_s: float) -> Answered:
        """The coordinator's answer; of several addresses each is tried once, in the time that the sender has."""
        deadline = Deadline(self._clock, patience_s)
        while True:
            answer, trouble = self._attempt(control, timeouts.attempt_s(deadline.left_s, 0.0))
            self._note(trouble)
            if not trouble:
                self._addresses.answered()
                return answer
            if self._addresses.turn():
                return answer

    def _note(self, trouble: str) -> None:
        """Keeps in mind why an attempt failed, and says in the log what is new."""
        before, self.trouble = self.trouble, trouble
        if trouble and trouble != before:
            log.warning("no answer from %s: %s", str(self).rpartition("@")[2], trouble)
        elif before and not trouble:
            log.info("%s answers again", str(self).rpartition("@")[2])

    def close(self) -> None:
        self._addresses.close()

    def _attempt(self, control: Control, limit_s: float) -> tuple[Answered, str]:
        """The answer, and why the attempt failed, empty if it did not."""
        try:
            response = self._addresses.http.request(
                control.method,
                control.path,
                content=control.body.encode() or None,
                headers=control.headers,
                timeout=httpx.Timeout(limit_s, connect=min(limit_s, timeouts.CONNECT_S)),
            )
        except httpx.HTTPError as error:
            trouble = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            return _unreachable(f"The relay does not reach {self._addresses}: {trouble}."), trouble
        trouble = trouble_of(response) if response.status_code in RETRIED_STATUS else ""
        media_type = response.headers.get("content-type", "application/json")
        body = response.content.decode(errors="replace")
        return Answered(status=response.status_code, media_type=media_type, body=body), trouble


def _unreachable(detail: str) -> Answered:
    kind, hint = "relay-cannot-reach", "see the relay's log; the site repeats the request"
    problem = Problem(
        type=f"urn:crosstrain:problem:{kind}", title=kind, status=502, detail=detail, kind=kind, hint=hint
    )
    return Answered(status=502, media_type="application/problem+json", body=problem.model_dump_json())
