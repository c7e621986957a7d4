"""Whole runs as real processes: killed, cut off, drained, started wrongly; and what remains of them is checked."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.demo.rehearsal import Frames, processes_of, text_file
from tests.system.runs import Run, check_the_record, crosstrain, ended, write_run

from crosstrain.assembly import RunFiles, open_run, open_stored_run
from crosstrain.demo import prepare
from crosstrain.demo.chaos.prepare import Wishes
from crosstrain.demo.chaos.report import examine
from crosstrain.demo.play import play
from crosstrain.demo.prepare import NAMES, free_port
from crosstrain.domain.events import EventKind
from crosstrain.storage import lease_store, run_store

pytestmark = pytest.mark.system


def test_random_kills_stops_and_cuts_lose_nothing(tmp_path: Path) -> None:
    minutes, seed = 0.6, 11
    words = [
        "chaos",
        "--engine",
        "counting",
        "--minutes",
        minutes,
        "--seed",
        seed,
        "--json",
        "--keep",
        tmp_path / "run",
    ]
    with crosstrain(*map(str, words)) as process:
        output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    told = json.loads(output)
    assert told["problems"] == []
    assert told["windows"]["merged"] > 0 == told["windows"]["lost"] == told["windows"]["duplicated"]
    assert told["audit"]["ok"] and told["audit"]["replayed"] == told["generations"] >= 2
    plan = [fault.sentence for fault in Wishes(minutes, seed, 3, "counting").plan]
    assert [fault["what"] for fault in told["plan"]] == plan
    done = {fault["what"] for fault in told["faults"]}
    assert len(done & set(plan)) > len(plan) / 2
    assert not processes_of(tmp_path)
    _check_that_the_proof_can_fail(tmp_path / "run")


def _check_that_the_proof_can_fail(directory: Path) -> None:
    """One window that a rank trained twice is found."""
    files = open_run(directory / "RUN.toml")
    proof = check_the_record(files, NAMES[:3])
    tokens = _merged_tokens(files)
    log, lines, merged = next(
        (log, lines, at)
        for log in sorted((directory / "sites").glob("*/windows-0.log"))
        for lines in [log.read_text().splitlines()]
        for at, line in reversed(list(enumerate(lines)))
        if line[0].isdigit() and line.split()[0] in tokens
    )
    lines[merged] += f" {lines[merged].split()[-1]}"
    log.write_text("\n".join(lines) + "\n")
    tampered = examine(files, Wishes(seed=0, engine="counting")).windows
    assert (tampered.merged, tampered.lost, tampered.duplicated) == (proof.merged, 0, 1)
    assert len(tampered.problems) == 1


def _merged_tokens(files: RunFiles) -> set[str]:
    database, _ = open_stored_run(files)
    with database.read() as connection:
        rows = lease_store.all_leases(connection)
    database.close()
    return {str(row["token"]) for row in rows if row["state"] == "merged"}


@pytest.mark.torch
def test_real_training_survives_the_death_of_a_site_and_of_the_coordinator(tmp_path: Path) -> None:
    wishes = prepare.Wishes((text_file(tmp_path / "text.txt"),), sites=2, rounds=6, vocab=300)
    files = prepare.prepare(tmp_path, wishes, lambda _: None)
    played = play(files, wishes, Frames())
    told = " | ".join(fault.what for fault in played.faults)
    for part in ("SIGKILL to beta, agent and trainer", "beta starts again", "SIGKILL to the coordinator"):
        assert part in told
    assert played.status.generation == 6
    check_the_record(files, wishes.names)
    assert not processes_of(tmp_path)


def test_a_run_whose_sites_all_die_waits_and_goes_on(corpus: Path, tmp_path: Path) -> None:
    files = write_run(tmp_path, corpus)
    with Run(files) as run:
        run.fleet.start_site("alpha")
        run.fleet.start_site("beta")
        run.until(lambda status: (status.generation or 0) >= 1 and status.blocks.leased > 0)
        run.fleet.kill("alpha")
        run.fleet.kill("beta")
        alone = run.until(lambda status: status.blocks.leased == 0 and not any(site.alive for site in status.sites))
        # A contribution that was in closes its round first.
        left = run.until(lambda status: status.waiting == "waiting for a site to take a lease")
        assert not alone.finished
        assert left.blocks.contributed == 0
        run.fleet.start_site("beta")
        run.until(lambda status: (status.generation or 0) > (left.generation or 0))
    check_the_record(files, ("alpha", "beta"))
    assert not processes_of(tmp_path)


def test_sites_drain_on_sigterm_and_before_the_end_of_their_job(corpus: Path, tmp_path: Path) -> None:
    files = write_run(tmp_path, corpus, step_s=0.6, site="margin_s = 3.0\nrecord_windows = true")
    with Run(files) as run:
        run.fleet.start_site("alpha")
        run.until(lambda status: any(site.done >= 3 for site in status.sites if site.phase == "training"))
        run.fleet.start_site("beta", "--ends-in", "10")
        run.fleet.send("alpha", signal.SIGTERM)
        assert run.code_of("alpha") == 0
        assert "leaving: asked to by SIGTERM" in run.log("alpha")
        assert run.code_of("beta") == 0
        assert "leaving: the job ends in" in run.log("beta")
        status = run.until(lambda status: not status.blocks.leased)
        alpha, beta = sorted(status.sites, key=lambda site: site.name)
        assert alpha.doing == "left: asked to by SIGTERM"
        assert beta.doing.startswith("left: the job ends in")
    database, _ = open_stored_run(files)
    with database.read() as connection:
        sent = {row["site"]: row for row in lease_store.all_contributions(connection)}
        leased = {row["site"]: row["blocks"] for row in lease_store.all_leases(connection)}
        events = {(row["site"], row["kind"]): row["at"] for row in run_store.events(connection)}
    database.close()
    assert sent.keys() == {"alpha", "beta"}
    assert all(row["accepted"] and 0 < row["blocks"] < leased[site] for site, row in sent.items()), (sent, leased)
    assert status.blocks.merged + status.blocks.contributed == sum(row["blocks"] for row in sent.values())
    assert events["beta", EventKind.SESSION_ENDED] - events["beta", EventKind.SESSION_OPENED] < 10_000
    check_the_record(files, ("alpha", "beta"))


@pytest.fixture(scope="module")
def coordinator(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A run that nobody joins."""
    directory = tmp_path_factory.mktemp("refusing")
    with Run(write_run(directory, corpus)) as run:
        yield run
    assert not processes_of(directory)


# As a site of another release would: only the number differs.
OTHER_VERSION = (
    "-c",
    "from crosstrain.wire import messages; messages.PROTOCOL = 99; from crosstrain.cli.main import main; main()",
)


def test_sites_that_do_not_fit_are_told_why(coordinator: Run, corpus: Path, other_corpus: Path, tmp_path: Path) -> None:
    url = coordinator.files.config.site.url
    processes = {}
    for name, where, seed in (("corpus", other_corpus, 1), ("seed", corpus, 2), ("version", corpus, 1)):
        (tmp_path / name).mkdir()
        files = write_run(tmp_path / name, where, seed=seed)
        words = ("site", files.path, "--name", "alpha", "--url", url)
        processes[name] = crosstrain(*words, program=OTHER_VERSION if name == "version" else ("-m", "crosstrain"))
    codes = {name: ended(process) for name, process in processes.items()}
    assert {name: code for name, (code, _) in codes.items()} == {"corpus": 5, "seed": 5, "version": 5}
    for name, message, hint in (
        ("corpus", "windows of site alpha differs: the coordinator has", "copy the coordinator's corpus directory"),
        ("seed", "seed of site alpha differs: the coordinator has 1, the site 2", "set `run.seed`"),
        ("version", "the site 99", "install crosstrain"),
    ):
        assert f"error: {'The coordinator speaks protocol 1' if name == 'version' else message}" in codes[name][1]
        assert message in codes[name][1]
        assert f"hint: {hint}" in codes[name][1]
        assert "Traceback" not in codes[name][1]
    status = coordinator.status()
    assert status is not None
    assert status.sites == ()


def test_what_this_machine_cannot_do_is_an_error_that_says_what_to_do(
    coordinator: Run, corpus: Path, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("no directory")
    runs = {}
    for name in ("spool", "store"):
        (tmp_path / name).mkdir()
        runs[name] = write_run(tmp_path / name, corpus).path
    runs["spool"].write_text(runs["spool"].read_text().replace('dir = "sites"', f'dir = "{file}/sites"'))
    runs["store"].write_text(runs["store"].read_text().replace('dir = "coordinator"', f'dir = "{file}/store"'))
    url = f"http://127.0.0.1:{free_port()}"
    processes = {
        "port": crosstrain("coordinator", coordinator.files.path),
        "store": crosstrain("coordinator", runs["store"]),
        "spool": crosstrain("site", runs["spool"], "--name", "alpha"),
        "address": crosstrain("site", coordinator.files.path, "--name", "alpha", "--url", url, "--connect", "1"),
    }
    found = {name: ended(process) for name, process in processes.items()}
    expected = {
        "port": (3, f"Cannot listen on 127.0.0.1:{coordinator.files.config.coordinator.port}", "another port"),
        "store": (3, f"{file}/store cannot be written", "set `coordinator.dir`"),
        "spool": (3, f"{file}/sites/alpha cannot be written", "set `site.dir`"),
        "address": (4, f"The coordinator at {url} did not answer within 1 s", "is it running"),
    }
    for name, (code, message, hint) in expected.items():
        assert found[name][0] == code, found[name]
        assert message in found[name][1]
        assert hint in found[name][1]
        assert "Traceback" not in found[name][1]
    assert coordinator.status() is not None
