"""The loop of the ServerApp: a message to every node, its reply, and the next one, until the run is over."""

from __future__ import annotations

import logging
from collections.abc import Collection as Ids
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from pydantic import ValidationError

from crosstrain.clock import pause
from crosstrain.domain import timeouts
from crosstrain.errors import CrosstrainError, Unreachable
from crosstrain.flower.office import Desk, Office
from crosstrain.flower.papers import Collection, Delivery
from crosstrain.wire.client import refusal_of
from crosstrain.wire.mailbox import Answered, Control
from crosstrain.wire.messages import StatusReply

log = logging.getLogger(__name__)

STATUS = Control(method="GET", path="/v1/status")


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back for a message.

    Attributes:
        collection: None if the node failed.
        trouble: why it did.
    """

    message: str
    collection: Collection | None
    data: memoryview
    trouble: str = ""


class Exchange(Protocol):
    """Flower, as far as it is needed here: `GridExchange`, or another way to nodes in a test."""

    def nodes(self) -> Ids[int]:
        """The nodes that are there now."""
        ...

    def send(self, node: int, delivery: Delivery, data: bytes) -> str | None:
        """Gives a message to the SuperLink; returns its number, None if it was not taken."""
        ...

    def replies(self, messages: Ids[str]) -> Ids[Reply]:
        """Those that there are, each once."""
        ...


@dataclass(slots=True)
class _Node:
    desk: Desk
    message: str | None = None
    due_at: float = 0.0
    replied_at: float = 0.0
    trouble: str = ""


class Carrier:
    """Driven by `step` until `over`.

    Args:
        stay_s: after the end of the training, how long without a letter until the sites are taken to have left.
    """

    def __init__(self, exchange: Exchange, office: Office, stay_s: float) -> None:
        self._exchange = exchange
        self._office = office
        self._stay_s = stay_s
        self._nodes: dict[int, _Node] = {}
        self._list_at = 0.0
        self._status_at = 0.0
        self._status: Future[Answered] | None = None
        self._finished = False
        self._letter_at = office.clock.perf()

    @property
    def over(self) -> bool:
        """Whether the training is over and its sites left."""
        idle = all(node.desk.idle for node in self._nodes.values())
        return self._finished and idle and self._office.clock.perf() - self._letter_at > self._stay_s

    def step(self) -> float:
        """Does what is due; returns the seconds until something is."""
        now = self._office.clock.perf()
        if now >= self._list_at:
            self._list_at = now + timeouts.FLOWER_LIST_S
            self._list()
        waiting = {node.message: number for number, node in self._nodes.items() if node.message is not None}
        if waiting:
            for reply in self._exchange.replies(tuple(waiting)):
                self._take(self._nodes[waiting[reply.message]], waiting[reply.message], reply, now)
        for number, node in self._nodes.items():
            late = now - node.replied_at >= timeouts.FLOWER_ANSWER_S
            if node.message is None and now >= node.due_at and (late or not node.desk.answering):
                node.message = self._exchange.send(number, *node.desk.delivery())
                node.due_at = now + timeouts.FLOWER_REST_S if node.message is None else now
        self._office.tidy({digest for node in self._nodes.values() for digest in node.desk.wanted})
        self._ask_status(now)
        return timeouts.FLOWER_PULL_S

    def _list(self) -> None:
        found = set(self._exchange.nodes())
        for number in self._nodes.keys() - found:
            log.info("node %d left", number)
            del self._nodes[number]
        for number in found - self._nodes.keys():
            log.info("node %d came", number)
            self._nodes[number] = _Node(Desk(self._office))

    def _take(self, node: _Node, number: int, reply: Reply, now: float) -> None:
        node.message, node.replied_at = None, now
        trouble = reply.trouble
        if reply.collection is not None:
            trouble = reply.collection.trouble
            try:
                node.desk.take(reply.collection, reply.data)
            except CrosstrainError as error:
                trouble = str(error)
            if reply.collection.waiting:
                self._letter_at = now
        if trouble:
            node.due_at = now + timeouts.FLOWER_REST_S
            if trouble != node.trouble:
                log.error("node %d: %s", number, trouble)
        node.trouble = trouble

    def _ask_status(self, now: float) -> None:
        """Looks whether the training is over, without waiting for the answer."""
        if self._status is not None and self._status.done():
            answer = self._status.result()
            self._status = None
            if answer.status == 200:
                try:
                    self._finished = StatusReply.model_validate_json(answer.body).finished
                except ValidationError:
                    log.error("the coordinator's status is none of this version")
        if self._status is None and now >= self._status_at:
            self._status_at = now + timeouts.FLOWER_STATUS_S
            self._status = self._office.pass_on(STATUS, timeouts.FLOWER_STATUS_S)


def await_coordinator(office: Office, seconds: float) -> None:
    """Tries the coordinator until it answers.

    Raises:
        Unreachable: it did not in time.
        Refused: something else is at the address.
    """
    clock, pause_s = office.clock, timeouts.FIRST_RETRY_S
    started = clock.perf()
    while True:
        answer = office.pass_on(STATUS, timeouts.FLOWER_STATUS_S).result()
        if not office.trouble:
            break
        if clock.perf() - started >= seconds:
            raise Unreachable(
                f"The ServerApp does not reach the coordinator at {office}: {office.trouble}.",
                "it is the address as seen from the SuperLink's machine: --run-config 'coordinator=\"https://...\"'; "
                "behind a proxy set HTTPS_PROXY, and NO_PROXY for loopback",
            )
        pause(min(pause_s, seconds))
        pause_s = min(timeouts.LONGEST_RETRY_S, 2 * pause_s)
    if answer.status != 200:
        raise refusal_of(answer.status, answer.body.encode())
