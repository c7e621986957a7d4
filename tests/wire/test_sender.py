"""A site's side of a mailbox whose relay is slow: how long it is waited for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fakes import ManualClock, sha256

from crosstrain.errors import Unreachable
from crosstrain.wire.mailbox import Answer, Download, Failed, Mailbox, Moved, Upload
from crosstrain.wire.sender import MailboxBlobs

DATA = b"delta" * 100
DIGEST = sha256(DATA)
TAKES_S = 60


class SlowRelay:
    """Answers each letter after a minute of the clock that it moves.

    Attributes:
        patience: what the letters said, in seconds.
    """

    def __init__(self, mailbox: Mailbox, answer: Callable[[], Moved | Failed]) -> None:
        self._box, self._answer = mailbox.box("north"), answer
        self.clock = ManualClock()
        self._seen: dict[int, float] = {}
        self.patience: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.clock.wait(seconds)
        letter = self._box.letter()
        assert letter is not None
        if letter.number not in self._seen and isinstance(letter.content, Upload | Download):
            self._seen[letter.number] = self.clock.perf()
            self.patience.append(letter.patience_s)
        if self.clock.perf() - self._seen.get(letter.number, self.clock.perf()) >= TAKES_S:
            self._box.put_answer(Answer(number=letter.number, content=self._answer()), "relay")
        return False


def test_upload_that_is_put_into_the_mailbox_again_has_what_is_left_of_the_time(fast_tmp: Path) -> None:
    mailbox = Mailbox(fast_tmp / "box")
    relay = SlowRelay(mailbox, lambda: Failed(error="IntegrityError", message="It changed."))
    (path := fast_tmp / "delta").write_bytes(DATA)
    blobs, started = MailboxBlobs(mailbox, "north", relay.clock, relay.wait), relay.clock.perf()
    with pytest.raises(Unreachable, match="upload was not done within 100 s"):
        blobs.upload(path, DIGEST, 100.0, lambda _done, _total: None)
    assert relay.clock.perf() - started == pytest.approx(100, abs=0.1)
    assert relay.patience == pytest.approx([100, 40], abs=3)


def test_download_that_does_not_show_is_waited_for_until_the_deadline(fast_tmp: Path) -> None:
    mailbox = Mailbox(fast_tmp / "box")
    relay = SlowRelay(mailbox, lambda: Moved(total=len(DATA)))
    blobs, started = MailboxBlobs(mailbox, "north", relay.clock, relay.wait), relay.clock.perf()
    with pytest.raises(Unreachable, match="download was not done within 100 s"):
        blobs.download(DIGEST, fast_tmp / "weights", 100.0, lambda _done, _total: None)
    assert relay.clock.perf() - started == pytest.approx(100, abs=3)
