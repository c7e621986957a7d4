"""The files of a mailbox: replaced as a whole, read by their owner alone, and never a path that somebody else chose."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from crosstrain.errors import EnvironmentFault, UsageError
from crosstrain.wire.mailbox import (
    Answer,
    Answered,
    Control,
    Letter,
    Mailbox,
    Moving,
    Nothing,
    Pulse,
    Upload,
    mailbox_of,
    read_json,
)

LETTER = Letter(number=3, patience_s=30, content=Control(method="POST", path="/v1/sessions", body='{"a": 1}'))


@pytest.fixture
def mailbox(fast_tmp: Path) -> Mailbox:
    return Mailbox(fast_tmp / "box")


def test_a_letter_is_read_as_it_was_written(mailbox: Mailbox) -> None:
    box = mailbox.box("north")
    box.open()
    assert box.letter() is None
    box.write(LETTER)
    assert mailbox.names() == ("north",)
    assert mailbox.box("north").letter() == LETTER
    answer = Answer(number=3, content=Answered(status=200, body="{}"))
    box.put_answer(answer, "relay")
    assert box.answer() == answer


@given(cut=st.integers(0, 200), noise=st.binary(max_size=20))
def test_a_damaged_file_is_no_letter_and_no_error(mailbox: Mailbox, cut: int, noise: bytes) -> None:
    box = mailbox.box("north")
    box.open()
    box.write(LETTER)
    path = box.directory / "letter.json"
    whole = path.read_bytes()
    damaged = whole[: min(cut, len(whole) - 1)] + noise
    path.write_bytes(damaged)
    assert damaged == whole or box.letter() in (None, LETTER)
    if not noise:
        assert box.letter() is None


def test_readers_see_whole_letters_in_their_order_while_they_are_replaced(mailbox: Mailbox) -> None:
    box = mailbox.box("north")
    box.open()
    last = 300

    def write() -> None:
        for number in range(1, last + 1):
            body = "x" * (number * 37 % 5000)
            box.write(
                LETTER.model_copy(
                    update={"number": number, "content": Control(method="GET", path="/v1/status", body=body)}
                )
            )

    writer = threading.Thread(target=write)
    writer.start()
    seen = 0
    while seen < last:
        letter = box.letter()
        if letter is None:
            assert seen == 0, "a letter was there and then was not"
            continue
        assert letter.number >= seen
        assert isinstance(letter.content, Control)
        assert len(letter.content.body) == letter.number * 37 % 5000
        seen = letter.number
    writer.join()
    assert sorted(path.name for path in box.directory.iterdir()) == ["answer.json", "letter.json"]


def test_files_and_directories_are_for_their_owner_alone(mailbox: Mailbox) -> None:
    box = mailbox.box("north")
    box.open()
    box.write(LETTER)
    mailbox.put_pulse(Pulse(relay="1", beat=1, host="h", url="u"))
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in mailbox.directory.rglob("*")}
    modes[mailbox.directory] = stat.S_IMODE(mailbox.directory.lstat().st_mode)
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}


def test_links_pipes_and_files_of_others_are_not_read(mailbox: Mailbox, fast_tmp: Path) -> None:
    box = mailbox.box("north")
    box.open()
    box.write(LETTER)
    path, other = box.directory / "letter.json", fast_tmp / "other.json"
    path.rename(other)
    path.symlink_to(other)
    assert box.letter() is None
    path.unlink()
    os.mkfifo(path)
    assert box.letter() is None
    path.unlink()
    other.rename(path)
    assert box.letter() == LETTER
    if os.geteuid() == 0:
        os.chown(path, 65534, -1)
        assert box.letter() is None


def test_a_mailbox_that_others_can_enter_is_refused(fast_tmp: Path) -> None:
    directory = fast_tmp / "box"
    directory.mkdir(mode=0o700)
    Mailbox(directory)
    directory.chmod(0o750)
    with pytest.raises(EnvironmentFault, match="mode 0750; expected user"):
        Mailbox(directory)
    directory.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(directory, 65534, -1)
        with pytest.raises(EnvironmentFault, match="belongs to user 65534"):
            Mailbox(directory)


def test_a_mailbox_that_cannot_be_made_says_why(fast_tmp: Path) -> None:
    (fast_tmp / "file").write_text("")
    for place in (fast_tmp / "no" / "such", fast_tmp / "file"):
        with pytest.raises(EnvironmentFault, match="The mailbox"):
            Mailbox(place)
    (fast_tmp / "real").mkdir(mode=0o700)
    (fast_tmp / "link").symlink_to(fast_tmp / "real")
    with pytest.raises(EnvironmentFault, match="is no directory"):
        Mailbox(fast_tmp / "link")


@pytest.mark.parametrize(
    "path",
    ["/v2/status", "/v1/../../etc/passwd", "http://other/v1/status", "/v1/a b", "/v1/status?x=../", "/v1/%2e%2e/"],
)
def test_a_letter_can_only_ask_for_paths_of_the_protocol(mailbox: Mailbox, path: str) -> None:
    with pytest.raises(ValidationError):
        Control(method="GET", path=path)
    box = mailbox.box("north")
    box.open()
    box.write(Letter(number=1, patience_s=1, content=Control(method="GET", path="/v1/status")))
    file = box.directory / "letter.json"
    file.write_text(file.read_text().replace("/v1/status", path))
    assert box.letter() is None


@pytest.mark.parametrize("name", ["../../etc/passwd", "a" * 63, "A" * 64, "a" * 64 + "/x"])
def test_a_letter_can_only_name_blobs_by_their_digest(name: str) -> None:
    with pytest.raises(ValidationError):
        Upload(digest=name)


def test_a_letter_larger_than_any_message_is_not_read(mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crosstrain.wire.mailbox.LARGEST_LETTER", 100)
    box = mailbox.box("north")
    box.open()
    box.write(LETTER.model_copy(update={"content": Control(method="POST", path="/v1/sessions", body="x" * 200)}))
    assert box.letter() is None


def test_names_that_are_no_senders_are_passed_over(mailbox: Mailbox) -> None:
    mailbox.box("north").open()
    (mailbox.senders / ".hidden").mkdir()
    (mailbox.senders / "file").write_text("")
    (mailbox.senders / "link").symlink_to(mailbox.senders / "north")
    assert mailbox.names() == ("north",)


def test_a_box_that_was_cleared_away_is_made_again(mailbox: Mailbox) -> None:
    box = mailbox.box("north")
    box.open()
    box.write(LETTER)
    box.remove()
    assert mailbox.names() == ()
    box.put_answer(Answer(number=3, content=Moving()), "relay")
    assert mailbox.names() == ()
    box.write(LETTER)
    assert box.letter() == LETTER


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://coordinator", None),
        (("https://one", "https://two"), None),
        ("mailbox:/scratch/box", Path("/scratch/box")),
        (("mailbox:/scratch/box",), Path("/scratch/box")),
    ],
)
def test_an_address_is_a_mailbox_or_not(url: str | tuple[str, ...], expected: Path | None) -> None:
    assert mailbox_of(url) == expected


@pytest.mark.parametrize("url", ["mailbox:box", "mailbox:", "mailbox:/a,https://b", ("https://b", "mailbox:/a")])
def test_a_mailbox_is_one_absolute_path(url: str | tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="one mailbox with an absolute path"):
        mailbox_of(url)


def test_a_file_of_another_kind_is_not_taken_for_a_letter(mailbox: Mailbox) -> None:
    mailbox.put_pulse(Pulse(relay="1", beat=1, host="h", url="u"))
    assert read_json(mailbox.directory / "relay.json", Letter) is None
    assert Letter(number=0, patience_s=0, content=Nothing()).content.kind == "nothing"
