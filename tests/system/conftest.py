"""One corpus for all system tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.demo.rehearsal import text_file

from crosstrain.corpus.build import build_corpus
from crosstrain.corpus.options import BuildOptions


def _build(directory: Path, paragraphs: int) -> Path:
    corpus = directory / "corpus"
    options = BuildOptions(vocab=300, seq_len=64, heldout=0.05)
    build_corpus([text_file(directory / "text.txt", paragraphs)], corpus, options, lambda _: None)
    return corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(tmp_path_factory.mktemp("corpus"), 300)


@pytest.fixture(scope="session")
def other_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(tmp_path_factory.mktemp("other"), 320)
