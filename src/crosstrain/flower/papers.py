"""What goes to and fro between ServerApp and ClientApp: letters and answers of a mailbox, and parts of blobs.

One `Delivery` goes to a node and one `Collection` comes back, again and again. Each is a JSON text beside at most one flat
array of bytes, because Flower's cost is per object.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import Field, ValidationError

from crosstrain.domain.plural import counted
from crosstrain.errors import UsageError
from crosstrain.wire.mailbox import Answer, Letter, Number, Paper, Sha256

FORMAT = 1
"""Grows when one half would misunderstand the other."""
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]

Written = TypeVar("Written", bound=Paper)


class Part(Paper):
    """`length` bytes of a blob from `offset` on. Those of several parts lie in the array in the order of the parts.

    Attributes:
        total: length of the whole blob, 0 where it is asked for.
    """

    digest: Sha256
    offset: Number
    length: Number
    total: Number = 0


class Delivery(Paper):
    """From the ServerApp to a node.

    Attributes:
        answers: by the sender's name.
        in_hand: number of the letter of each sender that is being dealt with; it need not come again.
        parts: of blobs for `incoming`; their bytes are in the array.
        wants: parts of blobs in `outgoing` that are to come back.
        batch_bytes: the largest array that may come back.
        linger_s: how long the node waits for a letter before it replies without one.
        trouble: why the coordinator is not reached, empty if it is.
    """

    format: Literal[1] = 1
    answers: dict[str, Answer] = Field(default_factory=dict)
    in_hand: dict[str, Number] = Field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    wants: tuple[Part, ...] = ()
    batch_bytes: Number = 0
    linger_s: Seconds = 0.0
    trouble: str = ""


class Collection(Paper):
    """From a node to the ServerApp.

    Attributes:
        waiting: number of the letter that each sender waits for an answer to; others were withdrawn.
        letters: those of them that were not in hand.
        parts: of blobs in `outgoing`; their bytes are in the array.
        has: bytes there of each blob that a sender wants to have.
        trouble: why the node could not look into its mailbox, empty if it did.
    """

    format: Literal[1] = 1
    waiting: dict[str, Number] = Field(default_factory=dict)
    letters: dict[str, Letter] = Field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    has: dict[Sha256, Number] = Field(default_factory=dict)
    trouble: str = ""


def read(text: str, kind: type[Written]) -> Written:
    """What the other half wrote.

    Raises:
        UsageError: it is not of this format.
    """
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise UsageError(
            f"Expected a {kind.__name__.lower()} of format {FORMAT}, "
            f"found {counted(error.error_count(), 'fault')} in {text[:80]!r}.",
            "install the same version of crosstrain beside the SuperLink and beside every SuperNode",
        ) from None


def bytes_of(parts: tuple[Part, ...], data: memoryview) -> list[tuple[Part, memoryview]]:
    """Each part with its bytes.

    Raises:
        UsageError: the array is longer or shorter than the parts say.
    """
    if sum(part.length for part in parts) != len(data):
        raise UsageError(
            f"Expected {sum(part.length for part in parts)} bytes of blobs, found {len(data)}.",
            "install the same version of crosstrain beside the SuperLink and beside every SuperNode",
        )
    found, at = [], 0
    for part in parts:
        found.append((part, data[at : at + part.length]))
        at += part.length
    return found
