"""`crosstrain init`: a run file for every site."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.fakes import corpus_manifest
from typer.testing import CliRunner

from crosstrain.cli.main import app


def init(corpus: Path, out: Path) -> str:
    """`data.corpus` of the run file that is written."""
    corpus.mkdir()
    corpus_manifest().save(corpus)
    done = CliRunner().invoke(app, ["init", "--corpus", str(corpus), "--size", "tiny", "--out", str(out)])
    assert done.exit_code == 0, done.output
    written: str = tomllib.loads(out.read_text())["data"]["corpus"]
    return written


def test_a_corpus_beside_the_run_file_is_named_so_that_both_can_be_copied_together(tmp_path: Path) -> None:
    assert init(tmp_path / "corpus", tmp_path / "RUN.toml") == "corpus"


def test_a_corpus_elsewhere_is_named_by_its_whole_path(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert init(tmp_path / "corpus", tmp_path / "run" / "RUN.toml") == str(tmp_path / "corpus")
