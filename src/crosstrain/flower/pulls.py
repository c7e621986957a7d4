"""Replies are pulled one by one, each by a thread of its own.

Flower waits within a pull for a reply that was announced and did not come as a whole: three minutes, if its SuperNode died in
between (OBJECT_PUSH_SESSION_TTL_SECONDS of flwr 1.33). In one pull for all, that would hold up the replies of all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from threading import Thread
from typing import Generic, TypeVar

from crosstrain.domain.timeouts import FLOWER_PULLED_S

T = TypeVar("T")


class Pulls(Generic[T]):
    """Pulls under way.

    Args:
        pull: asks for the reply to one message; returns at most one, and may take long. Called from several threads.
    """

    def __init__(self, pull: Callable[[str], Sequence[T]]) -> None:
        self._pull = pull
        self._under_way: dict[str, Future[Sequence[T]]] = {}

    def of(self, messages: Iterable[str]) -> list[T]:
        """The replies that came; those to other messages are not waited for any more.

        Raises:
            Exception: whatever a pull raised.
        """
        wanted = tuple(messages)
        begun = {message: self._begin(message) for message in wanted if message not in self._under_way}
        self._under_way = {message: begun.get(message) or self._under_way[message] for message in wanted}
        wait(begun.values(), FLOWER_PULLED_S)
        found: list[T] = []
        for message in wanted:
            if self._under_way[message].done():
                found += self._under_way.pop(message).result()
        return found

    def _begin(self, message: str) -> Future[Sequence[T]]:
        future: Future[Sequence[T]] = Future()

        def work() -> None:
            try:
                future.set_result(self._pull(message))
            except Exception as error:  # noqa: BLE001 - raised by `of`
                future.set_exception(error)

        Thread(target=work, name="pull", daemon=True).start()  # the app ends without those that still wait
        return future
