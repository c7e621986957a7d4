"""`crosstrain corpus` as it is typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from corpora import write
from typer.testing import CliRunner

from crosstrain.cli.corpus import app
from crosstrain.errors import IntegrityError, UsageError

RUNNER = CliRunner()


def run(*words: object) -> tuple[str, str]:
    result = RUNNER.invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def test_build_info_and_verify_agree(articles: Path, out: Path) -> None:
    words = ("build", articles, "--out", out, "--vocab", 280, "--seq-len", 16, "--heldout", 0.1, "--workers", 1)
    stdout, stderr = run(*words, "--json")
    manifest = json.loads(stdout)
    assert manifest["seq_len"] == 16
    assert [line.split(":")[0] for line in stderr.splitlines()] == [
        "scanning",
        "training the tokenizer",
        "encoding",
        "packing",
    ]
    assert json.loads(run("info", out, "--json")[0]) == manifest == json.loads(run("verify", out, "--json")[0])
    assert manifest["content_sha256"] in run("verify", out)[0]
    table = run("info", out)[0]
    assert "train" in table and "40 documents" in table and "by document" in table
    again, notice = run(*words, "--json")
    assert json.loads(again) == manifest
    assert "already holds this corpus" in notice


def test_errors_reach_the_caller(articles: Path, out: Path) -> None:
    with pytest.raises(UsageError, match="needs one tokenizer"):
        RUNNER.invoke(app, ["build", str(articles), "--out", str(out)], catch_exceptions=False)
    run("build", articles, "--out", out, "--vocab", 280, "--seq-len", 16, "--workers", 1)
    (out / "train.bin").write_bytes(b"")
    with pytest.raises(IntegrityError):
        RUNNER.invoke(app, ["verify", str(out)], catch_exceptions=False)


def test_a_process_with_two_workers_prints_no_warning(articles: Path, out: Path, tmp_path: Path) -> None:
    script = write(
        tmp_path / "entry point.py",
        f"import sys\nsys.path[:0] = {sys.path!r}\nfrom crosstrain.cli.corpus import app\n"
        "if __name__ == '__main__':\n    app()\n",
    )
    for number in range(40):
        write(articles / "large" / f"{number}.txt", f"{number} some text that goes on\n" * 2000)
    words = ["build", articles, "--out", out, "--vocab", "280", "--seq-len", "16", "--workers", "2"]
    done = subprocess.run(
        [sys.executable, "-W", "error", script, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TERM": "dumb"},
    )
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == [
        "scanning",
        "training the tokenizer",
        "encoding",
        "packing",
    ]
    assert ": 80 documents" in done.stdout
