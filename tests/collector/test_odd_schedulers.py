"""`collect` and `submit` where Slurm's clients answer oddly: scripts in their place, everything else real."""

from __future__ import annotations

from typing import Any

import pytest
from tests.collector.conftest import SHAPE, Facility

from crosstrain.batch.tables import SEPARATOR
from crosstrain.collector.collect import Collected
from crosstrain.collector.post import Post
from crosstrain.wire.placement import ReportRequest

PARTITION = (
    "PartitionName=cpu Default=YES MaxNodes=UNLIMITED MaxTime=2-00:00:00 MinNodes=0 State=UP TotalNodes=4 QoS=N/A"
)
CLIENTS = {
    "squeue": "true",
    "sinfo": r"printf 'cpu\037up\0372-00:00:00\0374\037idle\037(null)\037n[1-4]\n'",
    "show partition": f"echo '{PARTITION}'",
    "show reservation": "echo 'No reservations in the system'",
    "sacctmgr": "echo 'You are not running a supported accounting_storage plugin' >&2; exit 1",
    "sacct": "echo 'Slurm accounting storage is disabled' >&2; exit 1",
    "sbatch": 'echo "sbatch: Job 7 to start at $(($(date +%s) + 7200)) using 1 processors on nodes n1 in partition cpu" >&2',
}


def slurm(facility: Facility, changes: dict[str, str] | None = None, **batch: Any) -> Post:
    """A site whose clients are one-line scripts."""
    lines = {**CLIENTS, **(changes or {})}
    cases = "".join(f'*"{key}"*) {text};;\n' for key, text in lines.items())
    # sacctmgr before sacct: the first that fits counts.
    prefix = facility.wrapper(f'echo "$1" >> {facility.directory}/asked\ncase "$*" in\n{cases}*) exit 9;;\nesac')
    return facility.post(prefix, scheduler="slurm", user="me", **{"shapes": [SHAPE], **batch})


def report_of(found: Collected) -> ReportRequest:
    assert found.report is not None, found
    return found.report


def asked(facility: Facility) -> list[str]:
    return (facility.directory / "asked").read_text().split()


def test_without_accounting_estimates_come_from_probe_and_queue(facility: Facility) -> None:
    report = report_of(facility.collect(slurm(facility)))
    (estimate,) = report.estimates
    assert estimate.test_only_s == pytest.approx(7200, abs=60)
    assert estimate.plan_s == 0
    assert report.partition_limits_s == {"cpu": 172800}
    assert report.discount is None
    notes = "\n".join(report.notes)
    assert "accounting (sacct) cannot be seen" in notes
    assert "limits of QoS (sacctmgr) cannot be seen" in notes
    assert facility.deliver().trouble == ""
    assert facility.plan().submit


def printed(facility: Facility, name: str, rows: list[str]) -> str:
    """A client's line that prints these rows."""
    (facility.directory / name).write_text("".join(f"{row}\n" for row in rows))
    return f"cat {facility.directory / name}"


def test_where_accounting_shows_others_the_queue_is_planned_with_their_run_times(facility: Facility) -> None:
    epoch = facility.clock.now() // 1000
    told = ["9", "RUNNING", "cpu", "4", "4", "4:00:00", "0:00", epoch, epoch, "N/A", "7", "a", "(null)", "None", "job"]
    used = {
        "squeue": printed(facility, "queue", [SEPARATOR.join(map(str, told))]),
        "sinfo": CLIENTS["sinfo"].replace("idle", "allocated"),
    }
    (at_limits,) = report_of(facility.collect(slurm(facility, used))).estimates
    assert at_limits.plan_s == pytest.approx(4 * 3600)
    facility.clock.advance(7_200_000)
    ended = [
        [
            number,
            "COMPLETED",
            epoch - 9000,
            epoch - 9000,
            epoch - 9000,
            epoch - 60 * number,
            3600,
            240,
            4,
            "cpu",
            user,
            "None",
        ]
        for number, user in zip(range(1, 41), "ab" * 20, strict=True)
    ]
    sacct = {"sacct": printed(facility, "ended", [SEPARATOR.join(map(str, row)) for row in ended])}
    (estimate,) = report_of(facility.collect(slurm(facility, used | sacct))).estimates
    assert estimate.plan_s == pytest.approx(3600)


@pytest.mark.parametrize(
    ("printed", "note"),
    [
        ("echo '%PDF-1.4 garbage' >&2", "no verdict"),
        (
            "echo 'sbatch: Job 7 to start at 2184-01-01T00:00:00 using 1 processors on nodes n1' >&2",
            "no start that can be",
        ),
        (
            "echo 'sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)' >&2; exit 1",
            "was not estimated",
        ),
        ("echo 'sbatch: Job 7 to start at Unknown using 1 processors on nodes n1' >&2", "no start that can be"),
    ],
)
def test_probe_that_makes_no_sense_is_no_estimate_and_the_plan_goes_on(
    facility: Facility, printed: str, note: str
) -> None:
    hidden = r"printf 'cpu\037up\0372-00:00:00\0374\037allocated\037(null)\037n[1-4]\n'"
    report = report_of(facility.collect(slurm(facility, {"sbatch": printed, "sinfo": hidden})))
    assert report.estimates == ()
    assert note in "\n".join(report.notes)
    assert "other people's jobs are hidden" in "\n".join(report.notes)
    facility.deliver()
    assert facility.plan().submit


def test_start_in_the_past_is_now(facility: Facility) -> None:
    past = "echo 'sbatch: Job 7 to start at 1700000000 using 1 processors on nodes n1' >&2"
    (estimate,) = report_of(facility.collect(slurm(facility, {"sbatch": past}))).estimates
    assert estimate.test_only_s == 0


@pytest.mark.parametrize(
    ("printed", "note"),
    [
        (
            "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
            "the queue cannot",
        ),
        ("echo 'nonsense with | bars'", "cannot be read"),
    ],
)
def test_queue_that_cannot_be_read_is_said_and_nothing_is_submitted(
    facility: Facility, printed: str, note: str
) -> None:
    post = slurm(facility, {"squeue": printed})
    report = report_of(facility.collect(post))
    assert note in "\n".join(report.notes)
    assert len(report.offered) == 1
    _, found, done = facility.submit(post)
    assert {refusal.kind for refusal in found.refused} == {"queue_unknown"}
    assert done.submitted == ()


def test_absent_controller_is_asked_once_and_then_left_alone(facility: Facility) -> None:
    post = slurm(facility, {"squeue": "echo 'Unable to contact slurm controller' >&2; exit 1"}, probe_every_s=60.0)
    facility.collect(post)
    assert asked(facility) == ["squeue"]
    facility.clock.advance(100_000)
    assert facility.collect(post).report is None
    facility.clock.advance(30_000)
    assert facility.collect(post).report is not None


def test_limits_that_were_read_hold_while_the_controller_is_away(facility: Facility) -> None:
    shapes = [SHAPE, {**SHAPE, "hours": 100.0}]
    assert len(report_of(facility.collect(slurm(facility, shapes=shapes))).offered) == 1
    facility.clock.advance(7_200_000)
    away = {"squeue": "echo 'Unable to contact slurm controller' >&2; exit 1"}
    assert len(report_of(facility.collect(slurm(facility, away, shapes=shapes))).offered) == 1


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ({"partition": "gpu"}, "there is no partition gpu; found cpu"),
        ({"nodes": 5}, "partition cpu allows 4 nodes"),
        ({"hours": 49.0}, "partition cpu allows 48 h"),
    ],
)
def test_shapes_beyond_the_limits_are_not_offered_and_not_probed(
    facility: Facility, shape: dict[str, Any], reason: str
) -> None:
    found = facility.collect(slurm(facility, shapes=[{**SHAPE, **shape}]))
    report = report_of(found)
    assert report.offered == ()
    assert reason in "\n".join(report.notes)
    assert found.probed is None
    assert "sbatch" not in asked(facility)


def test_partition_that_is_down_is_said_though_a_probe_would_pass(facility: Facility) -> None:
    down = f"echo '{PARTITION.replace('State=UP', 'State=DOWN')}'"
    report = report_of(facility.collect(slurm(facility, {"show partition": down})))
    assert report.offered == ()
    assert "partition cpu is DOWN" in "\n".join(report.notes)


def test_refusal_for_good_takes_the_shape_from_the_offer_until_a_probe_passes(facility: Facility) -> None:
    refused = "echo 'sbatch: error: x' >&2; echo 'allocation failure: Invalid qos specification' >&2; exit 1"
    first = report_of(facility.collect(slurm(facility, {"sbatch": refused})))
    assert first.offered == ()
    assert "refused by the scheduler: bad qos" in "\n".join(first.notes)
    facility.clock.advance(600_000)
    # Not asked again so soon after a failure, and still not on offer.
    assert report_of(facility.collect(slurm(facility))).offered == ()
    facility.clock.advance(600_000)
    assert len(report_of(facility.collect(slurm(facility))).offered) == 1


def test_each_look_makes_one_probe_and_few_calls(facility: Facility) -> None:
    shapes = [{**SHAPE, "hours": hours} for hours in (1.0, 2.0, 4.0)]
    probed = []
    for _ in range(5):
        probed.append(facility.collect(slurm(facility, shapes=shapes)).probed)
        facility.clock.advance(61_000)
    assert probed[:3] == ["cpu 1 node x 1 h", "cpu 1 node x 2 h", "cpu 1 node x 4 h"]
    assert probed[3:] == ["backlog of cpu", None]
    calls = asked(facility)
    assert calls.count("sbatch") == 4
    assert calls.count("squeue") == calls.count("sinfo") == 5
    # What rarely changes is asked for once an hour; a command that failed is tried again.
    assert calls.count("scontrol") == 2
