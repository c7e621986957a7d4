"""The demo's real processes, with trainers that only count."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console
from tests.demo.rehearsal import Frames, processes_of, rehearsal, text_file

from crosstrain.assembly import open_stored_run
from crosstrain.coordinator.audit import audit
from crosstrain.demo.play import Played, play
from crosstrain.demo.prepare import Wishes
from crosstrain.demo.processes import Fleet
from crosstrain.demo.report import Findings, document, recovered_blocks, tell
from crosstrain.demo.watching import Frame, Lines
from crosstrain.errors import EnvironmentFault

KEYS = {"wall_s", "generations", "tokens", "heldout", "sites", "blocks", "faults", "sample", "audit"}


@pytest.mark.system
def test_every_fault_happens_and_nothing_is_lost(tmp_path: Path) -> None:
    wishes = Wishes((text_file(tmp_path / "text.txt"),), sites=3, rounds=14, vocab=300)
    files = rehearsal(tmp_path, wishes, step_s=0.08)
    log = Console(file=(tmp_path / "lines").open("w+"), width=200)
    played = play(files, wishes, Lines(log))
    assert not processes_of(tmp_path)
    status = played.status
    assert status.finished
    assert status.generation == 14
    assert all(site.merged_blocks > 0 for site in status.sites)
    assert {site.name: (site.entries, site.ttl_expiries) for site in status.sites} == {
        "alpha": (1, 0),
        "beta": (2, 1),
        "gamma": (1, 0),
    }
    told = " | ".join(fault.what for fault in played.faults)
    for part in (
        "gamma joins late",
        "SIGKILL to beta",
        "beta starts again",
        "SIGKILL to the coordinator",
        "starts again",
    ):
        assert part in told
    database, objects = open_stored_run(files)
    found = audit(database, objects, replay=True)
    recovered = recovered_blocks(database)
    database.close()
    assert found.problems == ()
    assert 0 < recovered == next(site.lost_blocks for site in status.sites if site.name == "beta")
    _check_the_report(played, Findings(found, recovered, "def \x1b[2J"), log)


def _check_the_report(played: Played, findings: Findings, log: Console) -> None:
    told = document(played, findings, 12.34)
    assert set(told) >= KEYS
    assert told["generations"] == 14
    assert [record["generation"] for record in told["heldout"]] == list(range(15))
    assert sum(site["merged_blocks"] for site in told["sites"].values()) == told["blocks"]["merged"]
    assert told["audit"] == {"ok": True, "problems": []}
    tell(log, played, findings, 12.34, "Nothing is kept.")
    log.file.seek(0)
    text = log.file.read()
    log.file.close()
    assert "generation 14 of 14 from 3 sites" in text
    assert f"{findings.recovered_blocks} blocks of expired leases were trained again and merged." in text
    assert "recomputed bit for bit" in text
    assert "\x1b" not in text


class _Interrupting(Frames):
    def show(self, frame: Frame) -> None:
        super().show(frame)
        if frame.status is not None and frame.status.sites:
            raise KeyboardInterrupt


@pytest.mark.system
def test_an_interrupt_leaves_no_process(tmp_path: Path) -> None:
    wishes = Wishes((text_file(tmp_path / "text.txt"),), sites=2, faults=False, vocab=300)
    files = rehearsal(tmp_path, wishes, step_s=0.01)
    with pytest.raises(KeyboardInterrupt):
        play(files, wishes, _Interrupting())
    assert not processes_of(tmp_path)


def test_a_process_that_ends_by_itself_is_quoted(tmp_path: Path) -> None:
    with Fleet(tmp_path / "RUN.toml", tmp_path) as fleet:
        fleet.start_site("alpha")
        assert fleet.sites == ("alpha",)
        fleet.await_sites(60.0)
        with pytest.raises(
            EnvironmentFault, match=r"alpha ended with exit code 2, .*\n.*There is no run file"
        ) as caught:
            fleet.look()
    assert "alpha.log" in caught.value.hint
    assert not processes_of(tmp_path)
