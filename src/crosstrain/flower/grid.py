"""Flower's grid, as far as the ServerApp needs it. The grid is made by flwr, which gives it to the app."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flwr.app import Message

from crosstrain.domain.timeouts import FLOWER_TTL_S
from crosstrain.errors import UsageError
from crosstrain.flower.carrier import Reply
from crosstrain.flower.papers import Collection, Delivery, read
from crosstrain.flower.pulls import Pulls
from crosstrain.flower.records import pack, unpack

MESSAGE_TYPE = "query.pump"


class GridExchange:
    """`carrier.Exchange` over Flower's grid."""

    def __init__(self, grid: Any) -> None:
        self._grid = grid
        self._pulls = Pulls[Any](lambda message: list(grid.pull_messages([message])))

    def nodes(self) -> list[int]:
        return list(self._grid.get_node_ids())

    def send(self, node: int, delivery: Delivery, data: bytes) -> str | None:
        message = Message(pack(delivery, data), dst_node_id=node, message_type=MESSAGE_TYPE, ttl=FLOWER_TTL_S)
        (number,) = self._grid.push_messages([message])
        return str(number) if number else None

    def replies(self, messages: Iterable[str]) -> list[Reply]:
        return [self._reply(message) for message in self._pulls.of(messages)]

    def _reply(self, message: Any) -> Reply:
        number = str(message.metadata.reply_to_message_id)
        if message.has_error():
            said = f"Flower's error {message.error.code}: {message.error.reason}"
            return Reply(number, None, memoryview(b""), said)
        try:
            text, data = unpack(message.content)
            return Reply(number, read(text, Collection), data)
        except UsageError as error:
            return Reply(number, None, memoryview(b""), str(error))
