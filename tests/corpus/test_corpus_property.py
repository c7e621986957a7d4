"""Random documents: the packed streams are the documents' tokens joined by the end-of-text token."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from corpora import build, jsonl, packed_documents, stream, write
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from crosstrain.corpus.manifest import Manifest
from crosstrain.corpus.options import BuildOptions
from crosstrain.corpus.tokenizer import encode
from crosstrain.corpus.verify import verify_corpus
from crosstrain.errors import UsageError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=120) | st.sampled_from(["a b c " * 9, " ", "\n\n"])
DOCUMENTS = st.lists(TEXT, min_size=1, max_size=12)


def check(documents: list[str], options: BuildOptions) -> None:
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory, "out")
        half = len(documents) // 2
        inputs = [
            write(Path(directory, f"{n}.jsonl"), jsonl(part))
            for n, part in enumerate((documents[:half], documents[half:]))
            if part
        ]
        try:
            manifest = build(inputs, out, options)
        except UsageError as error:
            assert "too short" in error.message or "no documents with text" in error.message
            assert not (out / "manifest.json").exists()
            assume(False)
        check_documents(out, manifest, documents, options.keep_duplicates)
        check_windows(stream(out, "train"), manifest.train.windows, options.seq_len)
        assert manifest.train.windows >= 1
        assert manifest.heldout.windows >= 1 or options.heldout == 0
        assert verify_corpus(out) == manifest


def check_documents(out: Path, manifest: Manifest, documents: list[str], keep_duplicates: bool) -> None:
    texts = [text for text in documents if text.strip()]
    expected = [encode(out, text) for text in (texts if keep_duplicates else dict.fromkeys(texts))]
    train, heldout = packed_documents(out, "train"), packed_documents(out, "heldout")
    assert (manifest.train.documents, manifest.heldout.documents) == (len(train), len(heldout))
    if manifest.heldout_rule == "tail-of-one-document":
        (tail,) = heldout
        heads = [number for number, tokens in enumerate(train) if tokens != expected[number]]
        assert {tuple(train[number] + tail) for number in heads} == {tuple(expected[heads[0]])}
        assert len(train) == len(expected)
    else:
        held = {tuple(tokens) for tokens in heldout}
        assert [tokens for tokens in expected if tuple(tokens) in held] == heldout
        assert [tokens for tokens in expected if tuple(tokens) not in held] == train


def check_windows(tokens: list[int], count: int, seq_len: int) -> None:
    windows = [tokens[number * seq_len :][: seq_len + 1] for number in range(count)]
    assert all(len(window) == seq_len + 1 for window in windows)
    inputs = [token for window in windows for token in window[:-1]]
    assert inputs == tokens[: count * seq_len]
    assert 0 <= len(tokens) - 1 - count * seq_len < seq_len


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    documents=DOCUMENTS,
    seq_len=st.integers(1, 12),
    heldout=st.sampled_from([0.0, 0.02, 0.3, 0.95]),
    keep=st.booleans(),
    shard_bytes=st.sampled_from([1, 50, 300, 1 << 20]),
)
def test_streams_are_the_documents_joined(
    tokenizer: Path, documents: list[str], seq_len: int, heldout: float, keep: bool, shard_bytes: int
) -> None:
    check(
        documents,
        BuildOptions(
            tokenizer=tokenizer,
            seq_len=seq_len,
            heldout=heldout,
            keep_duplicates=keep,
            shard_bytes=shard_bytes,
            workers=1,
        ),
    )


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(documents=st.lists(TEXT, min_size=6, max_size=12), workers=st.integers(2, 4))
def test_streams_are_the_documents_joined_by_several_workers(
    tokenizer: Path, options: BuildOptions, documents: list[str], workers: int
) -> None:
    documents = [*documents, "enough text for a window of sixteen tokens " * 4, "and for another one " * 8]
    check(documents, replace(options, workers=workers, shard_bytes=100))
