"""`submit` over the local batch system: real jobs, repeats, crashes, limits."""

from __future__ import annotations

from tests.collector.conftest import SHAPE, Facility

from crosstrain.batch.readings import JobState
from crosstrain.collector.tracking import FORGOTTEN_MS, SETTLE_MS

NAME = "run.lumi"


def test_plan_is_submitted_once_and_chained(facility: Facility) -> None:
    _, found, done = facility.submit()
    first = [entry.name for entry in done.submitted]
    assert first[0] == f"{NAME}.1"
    assert done.refused == ()
    assert [item.name for item in found.submit] == first
    facility.until(done.submitted[0].job_id or "", JobState.RUNNING)
    # Now that one runs, as many wait behind it as the plan wants; then nothing is missing.
    second = facility.submit()[2].submitted
    for _ in range(2):
        _, found, again = facility.submit()
        assert again.submitted == ()
        assert [entry.name for entry in found.keep] == facility.names() == [*first, *(job.name for job in second)]
    assert (facility.directory / "ran").read_text().startswith(f"site {facility.directory}/RUN.toml --name lumi")


def test_queue_ahead_waits_for_the_job_before(facility: Facility) -> None:
    facility.batch = {"local_nodes": 4}
    submitted = []
    for _ in range(3):
        submitted += facility.submit()[2].submitted
    facility.until(submitted[0].job_id or "", JobState.RUNNING)
    submitted += facility.submit()[2].submitted
    assert len(submitted) > 1, "the plan queues nothing ahead"
    assert submitted[1].after == submitted[0].name
    # Nodes are free, and yet a second session of the site would supersede the first.
    assert facility.state(submitted[1].job_id or "") is JobState.PENDING
    (facility.directory / "go").touch()
    facility.until(submitted[1].job_id or "", JobState.COMPLETED)


def test_answer_that_was_lost_is_looked_up_by_name(facility: Facility) -> None:
    swallowed = facility.wrapper('case "$*" in *" submit "*) "$@" > /dev/null; exit 1;; esac; exec "$@"')
    _, _, done = facility.submit(facility.post(swallowed))
    assert [refusal.kind for refusal in done.refused][:1] == ["no_verdict"]
    assert [entry.state for entry in done.jobs.entries] == ["intent"]
    assert facility.names() == [f"{NAME}.1"]
    queue, found, again = facility.submit()
    assert [entry.name for entry in found.keep] == [f"{NAME}.1"]
    assert facility.names().count(f"{NAME}.1") == 1
    assert again.refused == ()
    assert queue.jobs.entries[0].job_id == "1"


def test_submission_that_never_arrived_is_made_after_a_while(facility: Facility) -> None:
    dropped = facility.wrapper('case "$*" in *" submit "*) exit 1;; esac; exec "$@"')
    facility.submit(facility.post(dropped))
    _, found, done = facility.submit()
    assert done.submitted == ()
    assert {refusal.kind for refusal in found.refused} == {"outcome_unknown"}
    facility.clock.advance(SETTLE_MS)
    _, _, done = facility.submit()
    assert done.submitted[0].name == f"{NAME}.1"


def test_while_nobody_can_tell_nothing_is_submitted(facility: Facility) -> None:
    dropped = facility.wrapper('case "$*" in *" submit "*) exit 1;; esac; exec "$@"')
    facility.submit(facility.post(dropped))
    garbled = facility.wrapper('case "$*" in *" jobs "*) echo "%&/ garbage"; exit 0;; esac; exec "$@"')
    for _ in range(3):
        facility.clock.advance(FORGOTTEN_MS)
        _, found, done = facility.submit(facility.post(garbled))
        assert done.submitted == ()
        assert {refusal.kind for refusal in found.refused} == {"queue_unknown"}
    assert facility.names() == []


def test_refused_submission_says_why_and_leaves_no_intent(facility: Facility) -> None:
    facility.batch = {"shapes": [{**SHAPE, "nodes": 3}]}
    _, _, done = facility.submit()
    assert [refusal.kind for refusal in done.refused][:1] == ["node_count"]
    assert done.jobs.entries == ()


def test_limits_are_never_passed(facility: Facility) -> None:
    facility.batch = {"max_queued": 1}
    facility.submit()
    facility.submit()
    assert len(facility.names()) == 1
    facility.close()
    facility.batch = {"node_hours": 1.5}
    _, found, done = facility.submit()
    assert done.submitted == () or len(facility.names()) <= 2
    assert {refusal.kind for refusal in found.refused} <= {"node_hours"}


def test_award_that_ended_submits_nothing(facility: Facility) -> None:
    facility.batch = {"award_ends": "2020-01-01"}
    _, found, done = facility.submit()
    assert done.submitted == ()
    assert {refusal.kind for refusal in found.refused} <= {"award_ends"}
    assert facility.names() == []
