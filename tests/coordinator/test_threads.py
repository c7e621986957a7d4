"""Work on threads whose caller does not wait any more."""

from __future__ import annotations

import asyncio
import threading

import pytest

from crosstrain.coordinator.threads import Threads

PATIENCE_S = 20.0


def test_work_is_over_before_its_call_is_however_often_that_is_cancelled() -> None:
    begun, goes_on, over = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert goes_on.wait(PATIENCE_S)
        over.set()

    async def cancel_it() -> None:
        call = asyncio.ensure_future(Threads(1, "test").run(work))
        assert await asyncio.to_thread(begun.wait, PATIENCE_S)
        for _ in range(3):
            call.cancel()
            _, pending = await asyncio.wait({call}, timeout=0.01)
            assert pending == {call}
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert over.is_set()

    asyncio.run(cancel_it())
