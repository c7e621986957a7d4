"""`verify` notices every kind of damage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from corpora import build

from crosstrain.corpus.options import BuildOptions
from crosstrain.corpus.tokenizer import decode
from crosstrain.corpus.verify import verify_corpus
from crosstrain.errors import IntegrityError, UsageError


def edit(out: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = out / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def flip(path: Path, position: int, value: int | None = None) -> None:
    content = bytearray(path.read_bytes())
    content[position] = content[position] ^ 1 if value is None else value
    path.write_bytes(content)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a token": (lambda out: flip(out / "train.bin", 20), "train.bin has the SHA-256"),
    "a token past the vocabulary": (lambda out: flip(out / "heldout.bin", 3, 200), "heldout.bin has the token 5"),
    "a missing file": (lambda out: (out / "heldout.bin").unlink(), "heldout.bin should have .* is missing"),
    "a short file": (lambda out: (out / "train.bin").write_bytes(b"1234"), "train.bin should have .* has 4"),
    "another tokenizer": (lambda out: (out / "tokenizer.json").write_text("{}"), "tokenizer.json is not the one"),
    "no tokenizer": (lambda out: (out / "tokenizer.json").unlink(), "tokenizer.json is missing"),
    "seq_len": (lambda out: edit(out, lambda m: m.update(seq_len=17)), "windows of .* content_sha256 is not"),
    "windows": (lambda out: edit(out, lambda m: m["train"].update(windows=9)), "says 9 windows"),
    "vocab_size": (lambda out: edit(out, lambda m: m.update(vocab_size=299)), "tokenizer.json has 300 tokens"),
    "an unknown version": (lambda out: edit(out, lambda m: m.update(format_version=2)), "not a manifest of format 1"),
    "no JSON": (lambda out: (out / "manifest.json").write_text("{"), "not a manifest of format 1"),
    "bytes": (lambda out: (out / "manifest.json").write_bytes(b"\xff"), "cannot be read"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_named(kind: str, articles: Path, out: Path, options: BuildOptions) -> None:
    build([articles], out, options)
    damage, message = DAMAGE[kind]
    damage(out)
    with pytest.raises(IntegrityError, match=message) as caught:
        verify_corpus(out)
    assert caught.value.exit_code == 6


def test_a_directory_without_a_corpus(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UsageError, match="holds no corpus"):
            verify_corpus(path)
        with pytest.raises(UsageError, match="holds no corpus"):
            decode(path, [1])


def test_a_damaged_tokenizer_does_not_decode(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(IntegrityError, match="not a tokenizer file"):
        decode(tmp_path, [1])
