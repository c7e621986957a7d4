from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from corpora import article, write

from crosstrain.corpus.options import BuildOptions
from crosstrain.corpus.tokenizer import train_tokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level tokenizer of 300 tokens."""
    file = train_tokenizer([article(n) for n in range(40)], 300)
    return write(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json", file.content)


@pytest.fixture
def options(tokenizer: Path) -> BuildOptions:
    return BuildOptions(tokenizer=tokenizer, seq_len=16, heldout=0.1, workers=1)


@pytest.fixture
def many_shards(options: BuildOptions) -> BuildOptions:
    return replace(options, shard_bytes=1000)


@pytest.fixture
def articles(tmp_path: Path) -> Path:
    """A directory of forty different text files."""
    for number in range(40):
        write(tmp_path / "articles" / f"{number:02}.txt", article(number))
    return tmp_path / "articles"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"
