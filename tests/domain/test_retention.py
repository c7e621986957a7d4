"""What is kept, what is noted and what is due, as a function of references, stored blobs and the time alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crosstrain.domain.generation import GenerationRecord
from crosstrain.domain.ids import Digest, Generation, Instant
from crosstrain.domain.retention import DeltaUse, Mark, Retention, Sorting, Stored, Uses, sort_out

GRACE, INSPECTION = 1000, 50_000
NOW = Instant(1_000_000)
ALL = Retention(0, 0, INSPECTION, GRACE)


def record(number: int) -> GenerationRecord:
    parent, momentum = (Generation(number - 1), Digest(f"momentum-{number}")) if number else (None, None)
    return GenerationRecord(
        Generation(number),
        parent,
        Digest(f"weights-{number}"),
        Digest(f"master-{number}"),
        momentum,
        number,
        number,
        0.7,
        0.9,
        1,
        Instant(number),
    )


def whole(name: str) -> Stored:
    return Stored(Digest(name), 10, whole=True)


CHAIN = tuple(record(number) for number in range(7))
USES = Uses(CHAIN, tuple(DeltaUse(Digest(f"delta-{n}"), Generation(n), True, NOW) for n in range(7)))
STORED = [whole(f"{kind}-{n}") for n in range(7) for kind in ("weights", "master", "momentum", "delta")]


def settle(stored: list[Stored], uses: Uses, retention: Retention, at: int = NOW) -> Sorting:
    """What is due when everything was noted long ago."""
    marks = {blob.digest: Mark(blob, "", Instant(at - GRACE)) for blob in stored}
    return sort_out(stored, marks, uses, retention, Instant(at))


def kept(uses: Uses, retention: Retention) -> set[str]:
    gone = {mark.stored.digest for mark in settle(STORED, uses, retention).due}
    return {blob.digest for blob in STORED if blob.digest not in gone}


@pytest.mark.parametrize(
    ("newest", "every", "numbers"),
    [(0, 0, range(7)), (0, 3, range(7)), (1, 0, [6]), (2, 0, [5, 6]), (2, 3, [0, 3, 5, 6]), (9, 0, range(7))],
)
def test_generations_are_kept_with_the_deltas_trained_from_them(newest: int, every: int, numbers: list[int]) -> None:
    found = kept(USES, Retention(newest, every, INSPECTION, GRACE))
    wanted = {f"{kind}-{n}" for n in numbers for kind in ("weights", "master", "momentum", "delta")}
    assert found - {"momentum-0"} == wanted - {"momentum-0"}


def test_base_of_a_live_lease_and_what_a_site_fetches_stay() -> None:
    strict = Retention(1, 0, INSPECTION, GRACE)
    assert "master-2" in kept(replace(USES, bases=frozenset({Generation(2)})), strict)
    fetched = kept(replace(USES, downloads=frozenset({Digest("weights-4")})), strict)
    assert "weights-4" in fetched and "master-4" not in fetched
    unknown = kept(replace(USES, unknown_downloads=True), strict)
    assert {f"weights-{n}" for n in range(7)} < unknown and "master-4" not in unknown


def test_a_file_that_a_kept_generation_shares_stays() -> None:
    chain = (*CHAIN[:5], replace(CHAIN[5], weights=CHAIN[1].weights), CHAIN[6])
    assert "weights-1" in kept(replace(USES, chain=chain), Retention(2, 0, INSPECTION, GRACE))


def test_refused_delta_stays_for_inspection() -> None:
    uses = Uses(CHAIN, (DeltaUse(Digest("bad"), Generation(6), False, NOW),))
    assert settle([whole("bad")], uses, ALL, NOW + INSPECTION - 1).due == ()
    (mark,) = settle([whole("bad")], uses, ALL, NOW + INSPECTION).due
    assert mark.reason == "it was refused, and the time to inspect it is over"


def test_a_delta_refused_once_and_accepted_once_is_needed() -> None:
    both = tuple(DeltaUse(Digest("delta"), Generation(6), accepted, Instant(0)) for accepted in (True, False))
    for deltas in (both, both[::-1]):
        assert settle([whole("delta")], Uses(CHAIN, deltas), ALL).due == ()


def test_grace_begins_when_it_is_first_seen() -> None:
    blob = whole("nobody's")
    (mark,) = sort_out([blob], {}, USES, ALL, NOW).fresh
    assert mark == Mark(blob, "nothing refers to it", NOW)
    before = sort_out([blob], {blob.digest: mark}, USES, ALL, Instant(NOW + GRACE - 1))
    assert (before.fresh, before.waiting, before.due) == ((), (mark,), ())
    assert sort_out([blob], {blob.digest: mark}, USES, ALL, Instant(NOW + GRACE)).due == (mark,)


def test_an_upload_that_moves_begins_its_grace_anew() -> None:
    still = Stored(Digest("upload"), 5, whole=False)
    marks = {still.digest: Mark(still, "", Instant(0))}
    for moved in (still._replace(size=6), still._replace(whole=True)):
        found = sort_out([moved], marks, USES, ALL, NOW)
        assert (found.due, [mark.since for mark in found.fresh]) == ((), [NOW])
    (mark,) = sort_out([still], marks, USES, ALL, NOW).due
    assert mark.reason == "its upload stands still"


def test_notes_of_what_is_needed_again_or_gone_are_taken_back() -> None:
    names = ("master-6", "gone")
    marks = {Digest(name): Mark(whole(name), "", Instant(0)) for name in names}
    found = sort_out([whole("master-6")], marks, USES, ALL, NOW)
    assert (set(found.over), found.due) == (set(names), ())


def test_reasons_name_generation_and_setting() -> None:
    found = settle(STORED, USES, Retention(2, 3, INSPECTION, GRACE)).due
    reasons = {mark.stored.digest: mark.reason for mark in found}
    assert reasons[Digest("master-4")] == "it is of generation 4: the newest 2 are kept, and every multiple of 3"
    assert reasons[Digest("delta-1")].startswith("its base, generation 1, is gone: ")


def test_packed_weights_go_with_their_generation_and_stay_while_they_are_fetched() -> None:
    chain = tuple(replace(each, packed=Digest(f"packed-{each.number}")) for each in CHAIN)
    stored, strict = [whole(f"packed-{n}") for n in range(7)], Retention(1, 0, INSPECTION, GRACE)

    def gone(uses: Uses) -> set[str]:
        return {mark.stored.digest for mark in settle(stored, uses, strict).due}

    assert gone(Uses(chain)) == {f"packed-{n}" for n in range(6)}
    assert gone(Uses(chain, unknown_downloads=True)) == set()
    assert "packed-4" not in gone(Uses(chain, downloads=frozenset({Digest("packed-4")})))
