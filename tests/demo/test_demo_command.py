"""`crosstrain demo` as a user starts it."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.demo.rehearsal import processes_of, text_file

COMMAND = [sys.executable, "-m", "crosstrain", "demo"]


def demo(*words: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=timeout, check=False)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", b"", "empty.txt is empty"),
        ("photo.png", b"PNG\0\1\2", "photo.png is not UTF-8 text"),
        ("short.txt", b"seven words are too few for this", "repeats too little for 2048 tokens"),
    ],
)
def test_an_unusable_input_is_named_before_anything_runs(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    path, kept = tmp_path / name, tmp_path / "kept"
    path.write_bytes(content)
    done = demo("--input", str(path), "--keep", str(kept))
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "hint: " in done.stderr
    assert not (kept / "RUN.toml").exists()
    assert not processes_of(tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sites", "0"], "--sites must be 1 to 8"),
        (["--sites", "9"], "--sites must be 1 to 8"),
        (["--rounds", "0"], "--rounds must be at least 1"),
        (["--rounds", "3"], "The faults need 6 rounds"),
    ],
)
def test_an_unusable_option_is_named(words: list[str], message: str) -> None:
    done = demo(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


@pytest.mark.torch
def test_a_used_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    done = demo("--keep", str(tmp_path))
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.system
@pytest.mark.torch
def test_two_sites_train_a_model(tmp_path: Path) -> None:
    text, kept = text_file(tmp_path / "text.txt"), tmp_path / "kept"
    options = ["--sites", "2", "--rounds", "4", "--no-faults", "--vocab", "512", "--json"]
    done = demo("--input", str(text), *options, "--keep", str(kept), timeout=300)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["generations"] == 4
    assert told["faults"] == []
    assert told["audit"] == {"ok": True, "problems": []}
    assert list(told["sites"]) == ["alpha", "beta"]
    assert all(site["merged_blocks"] > 0 for site in told["sites"].values())
    blocks = told["blocks"]
    assert blocks["total"] == blocks["available"] + blocks["leased"] + blocks["contributed"] + blocks["merged"]
    assert told["heldout"][-1]["perplexity"] < told["heldout"][0]["perplexity"] / 2
    assert math.exp(told["heldout"][-1]["loss"]) == pytest.approx(told["heldout"][-1]["perplexity"])
    assert told["sample"]
    assert "generation 4 of 4 from 2 sites" in done.stderr
    assert not processes_of(tmp_path)
    assert (kept / "logs" / "alpha.log").stat().st_size > 0


@pytest.mark.system
@pytest.mark.torch
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_of_it(number: signal.Signals, tmp_path: Path) -> None:
    text, kept = text_file(tmp_path / "text.txt"), tmp_path / "kept"
    words = [*COMMAND, "--input", str(text), "--vocab", "512", "--sites", "1", "--no-faults", "--keep", str(kept)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("generation 0 of 16" in line for line in process.stderr)
        assert processes_of(kept)
        os.kill(process.pid, number)
        process.stderr.read()
        assert process.wait(60) == 128 + number
    assert not processes_of(tmp_path)
