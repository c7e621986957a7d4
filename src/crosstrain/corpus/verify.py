"""Recomputes everything a manifest says about its directory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from crosstrain.corpus.manifest import TOKENIZER, Manifest, SplitName, windows_of
from crosstrain.corpus.reading import open_tokens
from crosstrain.corpus.tokenizer import Encoder
from crosstrain.domain.plural import counted
from crosstrain.errors import IntegrityError

_CHUNK = 1 << 20


def verify_corpus(directory: Path) -> Manifest:
    """Checks sizes, digests, counts, the range of tokens, and the tokenizer.

    Raises:
        UsageError: there is no corpus.
        IntegrityError: names everything that does not agree.
    """
    manifest = Manifest.load(directory)
    problems = [*_of_split(directory, manifest, "train"), *_of_split(directory, manifest, "heldout")]
    problems += _of_tokenizer(directory, manifest)
    if manifest.content_sha256 != manifest.expected_content_sha256():
        problems.append("manifest.json contradicts itself: content_sha256 is not that of its splits")
    if problems:
        raise IntegrityError(
            f"The corpus at {directory} is damaged: {'; '.join(problems)}.",
            "copy it again from where it was built, or build it again with --force",
        )
    return manifest


def _of_split(directory: Path, manifest: Manifest, name: SplitName) -> Iterator[str]:
    record = manifest.split(name)
    if record.windows != windows_of(record.tokens, manifest.seq_len):
        yield f"manifest.json says {counted(record.windows, 'window')} of {record.tokens} {name} tokens"
    try:
        tokens = open_tokens(directory, manifest, name)
    except IntegrityError as error:
        yield error.message.rstrip(".")
        return
    digest = hashlib.sha256()
    largest = -1
    for start in range(0, len(tokens), _CHUNK):
        chunk = tokens[start : start + _CHUNK]
        digest.update(chunk.tobytes())
        largest = max(largest, int(chunk.max()))
    if digest.hexdigest() != record.sha256:
        yield f"{name}.bin has the SHA-256 {digest.hexdigest()[:12]}..., not {record.sha256[:12]}..."
    if largest >= manifest.vocab_size:
        yield f"{name}.bin has the token {largest}, and the vocabulary ends at {manifest.vocab_size - 1}"


def _of_tokenizer(directory: Path, manifest: Manifest) -> Iterator[str]:
    path = directory / TOKENIZER
    content = path.read_bytes() if path.is_file() else None
    if content is None:
        yield f"{TOKENIZER} is missing"
    elif hashlib.sha256(content).hexdigest() != manifest.tokenizer_sha256:
        yield f"{TOKENIZER} is not the one that the corpus was encoded with"
    elif (found := Encoder(content).vocab_size) != manifest.vocab_size:
        yield f"{TOKENIZER} has {counted(found, 'token')}, and manifest.json says {manifest.vocab_size}"
