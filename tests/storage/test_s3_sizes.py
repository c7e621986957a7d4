"""What is known of a bucket's blobs: asked once, never older than what was done meanwhile, and not without bound."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.fakes import sha256

from crosstrain.domain.ids import Digest
from crosstrain.storage.digest_locks import DigestLocks
from crosstrain.storage.s3_sizes import Sizes

ONE, OTHER = sha256(b"one"), sha256(b"other")
WAIT_S = 10.0


class Service:
    """Answers as of the moment at which it is asked, and may do something before the answer arrives."""

    def __init__(self) -> None:
        self.there: dict[Digest, int] = {}
        self.asked: list[Digest] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def ask(self, digest: Digest) -> int | None:
        self.asked.append(digest)
        answer = self.there.get(digest)
        self.meanwhile()
        return answer


def test_service_is_asked_once_about_what_is_there_and_what_is_not() -> None:
    service = Service()
    service.there[ONE] = 5
    sizes = Sizes(service.ask)
    assert [sizes.known(ONE), sizes.size(ONE), sizes.size(ONE), sizes.known(ONE)] == [None, 5, 5, 5]
    assert [sizes.size(OTHER), sizes.size(OTHER)] == [None, None]
    assert service.asked == [ONE, OTHER]


def test_answer_from_before_a_removal_does_not_count_after_it() -> None:
    service = Service()
    service.there[ONE] = 5
    sizes = Sizes(service.ask)

    def removed() -> None:
        del service.there[ONE]
        sizes.forget(ONE)
        service.meanwhile = lambda: None

    service.meanwhile = removed
    assert sizes.size(ONE) == 5
    assert sizes.known(ONE) is None and sizes.size(ONE) is None


def test_answer_from_before_a_put_does_not_count_after_it() -> None:
    service = Service()
    sizes = Sizes(service.ask)

    def put() -> int:
        service.there[ONE] = 5
        return 5

    service.meanwhile = lambda: sizes.learn(ONE, put)
    assert sizes.size(ONE) is None
    assert sizes.known(ONE) == 5


def test_put_that_a_removal_overtook_does_not_count() -> None:
    sizes = Sizes(Service().ask)

    def put_and_removed() -> int:
        sizes.forget(ONE)
        return 5

    assert sizes.learn(ONE, put_and_removed) == 5
    assert sizes.known(ONE) is None


def test_question_that_failed_is_asked_again() -> None:
    service = Service()
    sizes = Sizes(service.ask)

    def away() -> None:
        service.meanwhile = lambda: None
        raise ConnectionError

    service.meanwhile = away
    try:
        sizes.size(ONE)
    except ConnectionError:
        service.there[ONE] = 5
    assert sizes.size(ONE) == 5


def test_only_so_many_are_remembered_those_asked_for_last() -> None:
    service = Service()
    sizes = Sizes(service.ask, most=2)
    names = [sha256(b"%d" % number) for number in range(3)]
    for name in (names[0], names[1], names[0], names[2], names[0]):
        sizes.size(name)
    assert service.asked == names
    sizes.size(names[1])
    assert service.asked == [*names, names[1]]


def test_lock_of_a_blob_keeps_out_who_wants_the_same_one_and_is_gone_afterwards() -> None:
    locks, came, left = DigestLocks(), threading.Event(), []

    def other() -> None:
        came.set()
        with locks(ONE):
            left.append("other")

    waiting = threading.Thread(target=other)
    with locks(ONE):
        with locks(OTHER):  # of another blob, which does not wait
            waiting.start()
            assert came.wait(WAIT_S)
        left.append("first")
        assert len(locks) == 1
    waiting.join(WAIT_S)
    assert left == ["first", "other"]
    assert len(locks) == 0
