"""What a shared file system does to a mailbox: files that show late, change, vanish, or cannot be written."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest
from tests.fakes import ManualClock
from tests.relay.bench import DATA, DIGEST, PATIENCE_S, Bench, drive, running, say, settled
from tests.waiting import until

from crosstrain.domain import timeouts
from crosstrain.domain.ids import Digest
from crosstrain.domain.timeouts import CLEAN_EVERY_S
from crosstrain.errors import EnvironmentFault, IntegrityError
from crosstrain.wire.mailbox import Answer, Letter, Moved, Nothing, Upload
from crosstrain.wire.sender import Sender


@pytest.fixture
def never_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that does not show at once never does."""
    monkeypatch.setattr("crosstrain.domain.timeouts.FILE_LATE_S", 0.0)


def letter_number(bench: Bench, number: int) -> Callable[[], bool]:
    def there() -> bool:
        letter = bench.mailbox.box("north-blobs").letter()
        return letter is not None and letter.number == number

    return there


def letter_there(bench: Bench, kind: str) -> Callable[[], bool]:
    def there() -> bool:
        letter = bench.mailbox.box("north-blobs").letter()
        return letter is not None and letter.content.kind == kind

    return there


def test_a_delta_that_shows_later_than_its_letter_is_waited_for(bench: Bench) -> None:
    box = bench.mailbox.box("north")
    box.open()
    box.write(Letter(number=1, patience_s=60, content=Upload(digest=DIGEST)))
    relay = bench.relay()
    for _ in range(5):
        relay.step()
    bench.source().rename(bench.mailbox.outgoing / DIGEST)
    drive(bench, lambda: box.answer() == Answer(number=1, content=Moved(total=len(DATA))), relay)
    assert bench.arrived("up") == DATA


def test_weights_that_show_later_than_the_answer_are_waited_for(bench: Bench) -> None:
    told, source = threading.Event(), bench.source()

    def wait(_seconds: float) -> bool:
        if told.is_set():
            source.rename(bench.mailbox.incoming / DIGEST)
        else:
            bench.mailbox.box("north").put_answer(Answer(number=1, content=Moved(total=len(DATA))), "relay")
        return False

    bench.blobs("north", wait).download(DIGEST, bench.target, PATIENCE_S, lambda *_: told.set())
    assert bench.arrived("down") == DATA


@pytest.mark.usefixtures("never_late")
def test_a_delta_that_somebody_removed_from_the_mailbox_is_put_there_again(bench: Bench) -> None:
    with running(bench.move("up")) as outcome:
        until(letter_there(bench, "upload"))
        (bench.mailbox.outgoing / DIGEST).unlink()
        drive(bench, settled(outcome))
    assert outcome.error is None
    assert bench.arrived("up") == DATA


@pytest.mark.usefixtures("never_late")
def test_weights_that_never_show_are_an_error_that_says_so(bench: Bench) -> None:
    with running(bench.move("down")) as outcome:
        for number in (1, 2):
            until(letter_number(bench, number))
            bench.mailbox.box("north-blobs").put_answer(Answer(number=number, content=Moved()), "relay")
    assert isinstance(outcome.error, IntegrityError)
    assert "does not show in the mailbox on this node, also after it was fetched again" in outcome.error.message


def test_a_mailbox_that_takes_no_files_is_an_error_for_people(bench: Bench) -> None:
    box = bench.mailbox.box("north")
    (box.directory / ".answer.json.opening").mkdir(parents=True)
    box.directory.chmod(0o700)
    with pytest.raises(EnvironmentFault, match=r"The mailbox .*/box cannot be written: Is a directory"):
        Sender(bench.mailbox, "north", bench.clock)
    blobs = bench.blobs()
    bench.mailbox.outgoing.rmdir()
    bench.mailbox.outgoing.write_text("")
    with pytest.raises(EnvironmentFault, match=r"cannot be put into the mailbox .*/box: Not a directory"):
        blobs.upload(bench.source(), DIGEST, 1.0, lambda *_: None)


def test_a_site_that_cannot_take_weights_from_the_mailbox_says_so(bench: Bench) -> None:
    (bench.directory / "file").write_text("")
    with running(bench.move("down", target=bench.directory / "file" / "weights")) as outcome:
        drive(bench, settled(outcome))
    assert isinstance(outcome.error, EnvironmentFault)
    assert "weights cannot be written: Not a directory" in outcome.error.message


def test_a_box_that_cannot_be_answered_holds_up_no_other(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()

    def then(holds: Callable[[], bool]) -> Callable[[], bool]:
        return lambda: clock.advance(1000 * timeouts.LONGEST_LOOK_S) or holds()

    bad = bench.mailbox.box("bad")
    bad.open()
    bad.write(Letter(number=1, patience_s=60, content=Upload(digest=DIGEST)))
    bench.source().rename(bench.mailbox.outgoing / DIGEST)
    relay = bench.relay(clock)
    (bad.directory / ".answer.json.r1").mkdir()
    drive(bench, then(lambda: "the box of bad" in caplog.text), relay)
    client = bench.control("north")
    with running(lambda: say(client, "x")) as outcome:
        drive(bench, then(settled(outcome)), relay)
    assert outcome.value.accepted
    (bad.directory / ".answer.json.r1").rmdir()
    drive(bench, then(lambda: bad.answer() == Answer(number=1, content=Moved(total=len(DATA)))), relay)


def test_a_blob_that_changed_in_the_mailbox_is_fetched_again(bench: Bench) -> None:
    place = bench.mailbox.incoming / DIGEST
    place.write_bytes(b"!" + DATA[1:])
    with running(bench.move("down")) as outcome:
        drive(bench, settled(outcome))
    assert outcome.error is None
    assert bench.target.read_bytes() == DATA
    assert bench.shelf.moved


def test_a_link_in_the_outgoing_directory_is_not_followed(bench: Bench) -> None:
    secret = bench.directory / "secret"
    secret.write_bytes(DATA)
    (bench.mailbox.outgoing / DIGEST).symlink_to(secret)
    box = bench.mailbox.box("north")
    box.open()
    box.write(Letter(number=1, patience_s=60, content=Upload(digest=DIGEST)))

    def failed() -> bool:
        answer = box.answer()
        return answer is not None and answer.content.kind == "failed"

    drive(bench, failed)
    assert bench.shelf.moved == []


def test_a_mailbox_that_is_away_for_a_while_is_waited_for(bench: Bench) -> None:
    sender = Sender(bench.mailbox, "north", ManualClock())
    hidden = bench.mailbox.directory.with_name("hidden")
    bench.mailbox.directory.rename(hidden)
    sender.send(Upload(digest=DIGEST), 60)
    assert sender.answer() is None
    assert "cannot be written" in sender.waits_for()
    hidden.rename(bench.mailbox.directory)
    assert sender.answer() is None
    letter = bench.mailbox.box("north").letter()
    assert letter is not None and letter.content == Upload(digest=DIGEST)
    assert sender.waits_for().startswith("no relay was ever at")


def test_what_nobody_wants_any_more_is_removed(bench: Bench) -> None:
    clock = ManualClock()
    relay = bench.relay(clock)
    living, gone = bench.mailbox.box("living"), bench.mailbox.box("gone")
    named, left = Digest("a" * 64), Digest("b" * 64)
    for box in (living, gone):
        box.open()
        box.write(Letter(number=1, patience_s=60, content=Nothing()))
    letter = gone.directory / "letter.json"
    old = letter.stat().st_mtime - timeouts.SENDER_GONE_S - 60
    os.utime(letter, (old, old))
    living.write(Letter(number=2, patience_s=60, content=Upload(digest=named)))
    (bench.mailbox.outgoing / named).write_bytes(b"x")
    (bench.mailbox.incoming / left).write_bytes(b"x")
    (bench.mailbox.incoming / f"{left}.part").write_bytes(b"x")
    for path in (bench.mailbox.incoming / left, bench.mailbox.incoming / f"{left}.part"):
        os.utime(path, (old, old))
    copied = bench.mailbox.outgoing / f".{'c' * 64}.new"
    copied.write_bytes(b"the beginning of a large file")
    for _ in range(round(timeouts.BLOB_KEPT_S / CLEAN_EVERY_S)):
        clock.advance(1000 * CLEAN_EVERY_S)
        relay.step()
    assert bench.mailbox.names() == ("living",)
    assert {path.name for path, _ in bench.mailbox.blobs()} == {named, left, f"{left}.part", copied.name}
    clock.advance(2000 * CLEAN_EVERY_S)
    relay.step()
    assert {path.name for path, _ in bench.mailbox.blobs()} == {named, copied.name}
    os.utime(copied, (old, old))
    clock.advance(1000 * CLEAN_EVERY_S)
    relay.step()
    assert {path.name for path, _ in bench.mailbox.blobs()} == {named}


def test_a_fault_of_the_file_system_is_waited_out(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    relay = bench.relay(clock)
    hidden = bench.mailbox.senders.with_name("hidden")
    bench.mailbox.senders.rename(hidden)
    assert relay.step() == timeouts.LONGEST_LOOK_S
    clock.advance(10_000)
    assert relay.step() == timeouts.LONGEST_LOOK_S
    assert len([record for record in caplog.records if "trying again" in record.message]) == 1
    hidden.rename(bench.mailbox.senders)
    clock.advance(10_000)
    assert relay.step() < timeouts.LONGEST_LOOK_S + 0.1
    assert bench.mailbox.pulse() is not None
