"""Flower's messages, and ours in them: a JSON text in a config record, and at most one flat array of bytes.

Bytes never go into a config record, which Flower does not cut into pieces, and never as several arrays, each of which costs
requests of its own.
"""

from __future__ import annotations

from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from crosstrain.errors import UsageError
from crosstrain.wire.mailbox import Paper

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
