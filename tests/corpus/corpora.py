"""Small deterministic text, and the reading back of what was built from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from crosstrain.corpus.build import build_corpus
from crosstrain.corpus.manifest import Manifest, SplitName
from crosstrain.corpus.options import BuildOptions, BuildProgress
from crosstrain.corpus.reading import open_tokens

WORDS = ["def", "return", "import", "lease", "block", "window", "token", "outer", "inner", "round", "site", "merge"]


def article(seed: object, words: int = 60) -> str:
    """Text that depends on the seed alone."""
    picks = hashlib.shake_256(str(seed).encode()).digest(words)
    return " ".join(WORDS[pick % len(WORDS)] + ("\n" if pick % 11 == 0 else "") for pick in picks) + f" {seed}\n"


def jsonl(texts: Iterable[str], field: str = "text") -> bytes:
    return b"".join(json.dumps({"id": n, field: text}).encode() + b"\n" for n, text in enumerate(texts))


def write(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def build(
    inputs: Sequence[Path], out: Path, options: BuildOptions, reports: list[BuildProgress] | None = None
) -> Manifest:
    return build_corpus(inputs, out, options, [].append if reports is None else reports.append)


def stream(out: Path, split: SplitName) -> list[int]:
    tokens: list[int] = open_tokens(out, Manifest.load(out), split).tolist()
    return tokens


def packed_documents(out: Path, split: SplitName) -> list[list[int]]:
    """The documents of a split, by its end-of-text tokens."""
    eot = Manifest.load(out).eot_token_id
    documents: list[list[int]] = [[]]
    for token in stream(out, split):
        if token == eot:
            documents.append([])
        else:
            documents[-1].append(token)
    return documents if documents != [[]] else []
