"""Queue against plan, for any journal and plan."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from crosstrain.collector.difference import Allowed, difference
from crosstrain.collector.history import charged_h
from crosstrain.collector.journal import Entry, Jobs
from crosstrain.domain.ids import Instant
from crosstrain.wire.placement import ItemBody, ShapeBody

NOW = Instant(10**12)
SHAPES = tuple(ShapeBody(partition="gpu", nodes=nodes, walltime_s=3600) for nodes in (1, 2, 4))
STATES = ("pending", "running", "ended", "cancelled", "unknown")


@st.composite
def journals(draw: st.DrawFn) -> Jobs:
    numbers = draw(st.lists(st.integers(1, 12), unique=True, max_size=8))
    return Jobs(
        entries=tuple(
            Entry(
                name=f"run.site.{number}",
                shape=draw(st.sampled_from(SHAPES)),
                state=draw(st.sampled_from(STATES)),
                intent_ms=NOW - 10**6,
                job_id=str(number),
            )
            for number in sorted(numbers)
        )
    )


items = st.lists(
    st.builds(ItemBody, name=st.integers(1, 15).map(lambda n: f"run.site.{n}"), shape=st.sampled_from(SHAPES)),
    max_size=6,
    unique_by=lambda item: item.name,
)


@given(journals(), items, st.integers(1, 6), st.none() | st.floats(0, 40))
@settings(max_examples=400, deadline=None)
def test_every_item_has_one_fate_and_no_limit_is_passed(
    jobs: Jobs, wanted: list[ItemBody], max_queued: int, node_hours: float | None
) -> None:
    allowed = Allowed({shape: [] for shape in SHAPES}, max_queued, node_hours)
    found = difference(tuple(wanted), jobs, allowed, "run", "site", NOW)
    fates = [item.name for item in found.submit] + [e.name for e in found.done] + [r.item.name for r in found.refused]
    assert sorted(fates) == sorted(item.name for item in wanted)
    # A name that the journal knows is never submitted again.
    assert not {item.name for item in found.submit} & {entry.name for entry in jobs.entries}
    assert not found.submit or len(found.keep) + len(found.submit) <= max_queued
    if node_hours is not None and found.submit:
        more = sum(item.shape.nodes for item in found.submit)
        assert charged_h(jobs, pending=True) + more <= node_hours
    # Live jobs stay, whether the plan names them or not.
    assert {entry.name for entry in found.keep} == {entry.name for entry in jobs.entries if entry.open}


@given(journals(), items)
def test_what_is_done_is_not_done_again(jobs: Jobs, wanted: list[ItemBody]) -> None:
    allowed = Allowed({shape: [] for shape in SHAPES}, 1000)
    found = difference(tuple(wanted), jobs, allowed, "run", "site", NOW)
    submitted = (
        Entry(name=item.name, shape=item.shape, state="pending", intent_ms=NOW, job_id="1") for item in found.submit
    )
    again = difference(tuple(wanted), jobs.put(*submitted), allowed, "run", "site", NOW)
    assert again.submit == ()
    assert again.refused == ()


def test_shapes_and_names_that_are_not_ours_are_refused_by_kind() -> None:
    small, big, foreign = SHAPES[0], SHAPES[1], ShapeBody(partition="other", nodes=1, walltime_s=60)
    allowed = Allowed({small: [], big: ["partition gpu is DOWN"]}, 10, award_ends=Instant(NOW + 3_600_000))
    wanted = (
        ItemBody(name="run.site.1", shape=small),
        ItemBody(name="run.site.2", shape=big),
        ItemBody(name="run.site.3", shape=foreign),
        ItemBody(name="else.site.4", shape=small),
    )
    found = difference(wanted, Jobs(), allowed, "run", "site", NOW)
    assert [item.name for item in found.submit] == ["run.site.1"]
    assert [refusal.kind for refusal in found.refused] == ["limits", "unknown_shape", "foreign_name"]
    late = difference(wanted[:1], Jobs(), allowed, "run", "site", Instant(NOW + 1))
    assert [refusal.kind for refusal in late.refused] == ["award_ends"]


def test_while_an_outcome_is_unknown_everything_is_refused() -> None:
    allowed = Allowed({SHAPES[0]: []}, 10, blocked=("outcome_unknown", "who knows", "wait"))
    found = difference((ItemBody(name="run.site.1", shape=SHAPES[0]),), Jobs(), allowed, "run", "site", NOW)
    assert [refusal.kind for refusal in found.refused] == ["outcome_unknown"]


def test_a_job_that_nothing_tells_of_any_more_counts_for_ten_minutes() -> None:
    lost = Entry(
        name="run.site.1", shape=SHAPES[0], state="unknown", intent_ms=NOW - 10**7, job_id="1", missed_ms=NOW - 599_999
    )
    wanted, allowed = (ItemBody(name="run.site.2", shape=SHAPES[0]),), Allowed({SHAPES[0]: []}, 1)
    found = difference(wanted, Jobs(entries=(lost,)), allowed, "run", "site", NOW)
    assert [refusal.kind for refusal in found.refused] == ["max_queued"]
    assert "of 1 of them the scheduler told nothing" in found.refused[0].reason
    later = difference(wanted, Jobs(entries=(lost,)), allowed, "run", "site", Instant(NOW + 1))
    assert later.submit == wanted
