"""A build that dies is taken up again and ends in the same corpus."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from corpora import article, build, jsonl, write

from crosstrain.corpus.options import BuildOptions, BuildProgress
from crosstrain.errors import EnvironmentFault, UsageError

TEXTS = [article(n) for n in range(40)]


def test_a_failed_build_goes_on_when_the_input_is_mended(tmp_path: Path, out: Path, many_shards: BuildOptions) -> None:
    good = write(tmp_path / "good.jsonl", jsonl(TEXTS))
    bad = write(tmp_path / "late.jsonl", b"not json\n" + jsonl([article("late")]))
    with pytest.raises(UsageError, match=r"late\.jsonl:1"):
        build([good, bad], out, many_shards)
    assert not (out / "manifest.json").exists()
    bad.write_bytes(jsonl([article("late")]))
    reports: list[BuildProgress] = []
    manifest = build([good, bad], out, many_shards, reports)
    assert max(report.reused_shards for report in reports) > 5
    assert manifest == build([good, bad], tmp_path / "clean", many_shards)
    assert not (out / ".build").exists()


def test_other_options_do_not_go_on_with_it(tmp_path: Path, out: Path, many_shards: BuildOptions) -> None:
    bad = write(tmp_path / "bad.jsonl", jsonl(TEXTS) + b"not json\n")
    with pytest.raises(UsageError):
        build([bad], out, many_shards)
    bad.write_bytes(jsonl(TEXTS))
    with pytest.raises(UsageError, match=r"unfinished corpus with other options: heldout 0\.1, asked for 0\.2"):
        build([bad], out, replace(many_shards, heldout=0.2))
    reports: list[BuildProgress] = []
    build([bad], out, replace(many_shards, heldout=0.2, force=True), reports)
    assert max(report.reused_shards for report in reports) == 0


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_shard_is_not_used(damage: str, tmp_path: Path, out: Path, many_shards: BuildOptions) -> None:
    source = write(tmp_path / "bad.jsonl", jsonl(TEXTS) + b"not json\n")
    with pytest.raises(UsageError):
        build([source], out, many_shards)
    source.write_bytes(jsonl(TEXTS))
    shard = sorted((out / ".build").glob("*.shard"))[0]
    content = bytearray(shard.read_bytes())
    content[10] ^= 1
    shard.write_bytes(content[:-9] if damage == "cut" else content)
    assert build([source], out, many_shards) == build([source], tmp_path / "clean", many_shards)


def test_two_builds_do_not_share_a_directory(articles: Path, out: Path, many_shards: BuildOptions) -> None:
    seen: list[str] = []

    def second(state: BuildProgress) -> None:
        if state.phase == "encoding" and not seen:
            with pytest.raises(EnvironmentFault, match="Another build is writing") as caught:
                build([articles], out, many_shards)
            seen.append(caught.value.message)

    from crosstrain.corpus.build import build_corpus

    build_corpus([articles], out, many_shards, second)
    assert seen


PROGRAM = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from crosstrain.corpus.build import build_corpus
from crosstrain.corpus.options import BuildOptions

def report(state):
    if state.phase == "encoding" and state.done_shards >= 3:
        print("three", flush=True)
        sys.stdin.read()

options = BuildOptions(tokenizer=Path({tokenizer!r}), seq_len=16, heldout=0.1, workers=2, shard_bytes=5_000)
build_corpus([Path({source!r})], Path({out!r}), options, report)
"""


@pytest.mark.parametrize("cause", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_build_leaves_no_process_and_goes_on(
    cause: signal.Signals, tmp_path: Path, out: Path, options: BuildOptions
) -> None:
    source = write(tmp_path / "many.jsonl", jsonl(article(n, 200) for n in range(100)))
    program = PROGRAM.format(path=sys.path, tokenizer=str(options.tokenizer), source=str(source), out=str(out))
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout and process.stdout.readline() == "three\n", process.communicate()[1]
    if cause == signal.SIGINT:
        os.killpg(process.pid, cause)
    else:
        process.send_signal(cause)
    # Ends only when every process that holds the pipes has ended.
    _, errors = process.communicate(timeout=20)
    assert process.returncode == -cause
    assert errors.count("Traceback") == (1 if cause == signal.SIGINT else 0)
    assert not (out / "manifest.json").exists()
    reports: list[BuildProgress] = []
    resumed = replace(options, shard_bytes=5_000)
    manifest = build([source], out, resumed, reports)
    assert max(report.reused_shards for report in reports) >= 3
    if cause == signal.SIGKILL:
        assert manifest == build([source], tmp_path / "clean", resumed)
