"""The text that a tokenizer is trained on: a bounded sample of the training documents, spread over all inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from crosstrain.corpus.documents import Document, documents_of
from crosstrain.corpus.inputs import NotTextError, Part
from crosstrain.corpus.options import BuildOptions

_MIN_SHARE = 1 << 16


def sample(groups: Sequence[Sequence[Part]], options: BuildOptions) -> list[str]:
    """Documents from the beginnings of evenly spaced groups, `options.sample_bytes` bytes at most.

    Documents that the fraction holds out are not in it. Where that leaves nothing (one document), all are.

    Raises:
        UsageError: an input is not what its name promises.
    """
    step = -(-len(groups) * _MIN_SHARE // max(options.sample_bytes, _MIN_SHARE))
    chosen = groups[::step]
    share = options.sample_bytes // len(chosen)
    for fraction in (options.heldout, 0.0):
        texts = [text for group in chosen for text in _of_group(group, options.field, fraction, share)]
        if texts:
            return texts
    return []


def _of_group(group: Sequence[Part], field: str, fraction: float, share: int) -> Iterator[str]:
    for part in group:
        for document in documents_of(part, field, lambda _: None):
            if share <= 0:
                return
            texts, size = _head(document, fraction, share)
            share -= size
            yield from texts


def _head(document: Document, fraction: float, share: int) -> tuple[list[str], int]:
    """Pieces of a training document up to `share` bytes, and their size."""
    digest = hashlib.sha256()
    texts: list[str] = []
    size = 0
    try:
        for piece in document.pieces:
            content = piece.encode()
            digest.update(content)
            if size < share:
                kept = content[: share - size].decode(errors="ignore")
                texts.append(kept)
                size += min(len(content), share - size)
    except NotTextError:
        return [], 0
    held_out = int.from_bytes(digest.digest()[:8], "big") < int(fraction * 2**64)
    return ([], 0) if held_out else (texts, size)
