"""Flower's messages, and ours in them: a JSON text in a config record, and at most one flat array of bytes.

The only modules that import flwr are this one and those of the two apps. Bytes never go into a config record, which Flower
does not cut into pieces, and never as several arrays, each of which costs requests of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from crosstrain.errors import UsageError
from crosstrain.flower.carrier import Reply
from crosstrain.flower.papers import Collection, Delivery, read
from crosstrain.wire.mailbox import Paper

MESSAGE_TYPE = "query.pump"
TTL_S = 3600.0
"""After so long without a reply a node gets another message; one that is gone is noticed by the SuperLink much sooner."""
_PAPER, _BLOBS, _BYTES = "paper", "blobs", "bytes"


def pack(paper: Paper, data: bytes) -> Any:
    """The content of a message."""
    content = RecordDict({_PAPER: ConfigRecord({"json": paper.model_dump_json()})})
    if data:
        content[_BLOBS] = ArrayRecord({_BYTES: Array("uint8", (len(data),), "crosstrain.bytes", data)})
    return content


def unpack(content: Any) -> tuple[str, memoryview]:
    """The JSON text and the bytes of a message.

    Raises:
        UsageError: it is none of ours.
    """
    try:
        text = content[_PAPER]["json"]
        data = content[_BLOBS][_BYTES].data if _BLOBS in content else b""
    except KeyError as error:
        raise UsageError(
            f"The message has no {error}.", "give this federation no other app's runs, or SuperNodes of their own"
        ) from None
    return str(text), memoryview(data)


class GridExchange:
    """`carrier.Exchange` over Flower's grid."""

    def __init__(self, grid: Any) -> None:
        self._grid = grid

    def nodes(self) -> list[int]:
        return list(self._grid.get_node_ids())

    def send(self, node: int, delivery: Delivery, data: bytes) -> str | None:
        message = Message(pack(delivery, data), dst_node_id=node, message_type=MESSAGE_TYPE, ttl=TTL_S)
        (number,) = self._grid.push_messages([message])
        return str(number) if number else None

    def replies(self, messages: Iterable[str]) -> list[Reply]:
        return [self._reply(message) for message in self._grid.pull_messages(list(messages))]

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
