"""What the coordinator's answers about blobs say, and what they stand for when they say no."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from crosstrain.wire import messages
from crosstrain.wire.client import RETRIED_STATUS, refusal_of, trouble
from crosstrain.wire.line import Answer
from crosstrain.wire.patience import TryAgainError

Reply = TypeVar("Reply", bound=BaseModel)


def received(answer: Answer) -> messages.Received:
    """What the coordinator holds of a blob; raises as `reply_of`."""
    return reply_of(answer, messages.Received)


def reply_of(answer: Answer, kind: type[Reply]) -> Reply:
    """What the coordinator answers.

    Raises:
        TryAgainError: it cannot say right now.
        Refused: it will not.
    """
    raise_for(answer)
    try:
        return kind.model_validate_json(answer.body)
    except ValidationError as error:
        raise refusal_of(answer.status, answer.body) from error


def raise_for(answer: Answer) -> None:
    """The error that an answer stands for, if it stands for one."""
    if answer.status in RETRIED_STATUS:
        raise TryAgainError(trouble(answer.status, answer.reason, answer.body))
    if answer.status >= 300:
        raise refusal_of(answer.status, answer.body)
