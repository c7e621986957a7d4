"""What goes into a corpus, in which order, and what identifies it."""

from __future__ import annotations

import gzip
import hashlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from corpora import article, build, jsonl, packed_documents, stream, write

from crosstrain.corpus.manifest import Manifest
from crosstrain.corpus.options import BuildOptions, BuildProgress
from crosstrain.corpus.reading import open_tokens, stdlib_sources
from crosstrain.corpus.tokenizer import decode, encode
from crosstrain.corpus.verify import verify_corpus

TEXTS = [article(n) for n in range(40)]


def texts_of(out: Path) -> list[str]:
    """Train documents, then held-out ones."""
    return [decode(out, tokens) for split in ("train", "heldout") for tokens in packed_documents(out, split)]


def test_a_directory_is_read_in_order_and_split_by_document(articles: Path, out: Path, options: BuildOptions) -> None:
    manifest = build([articles], out, options)
    train = [decode(out, tokens) for tokens in packed_documents(out, "train")]
    heldout = [decode(out, tokens) for tokens in packed_documents(out, "heldout")]
    assert [text for text in TEXTS if text in train] == train
    assert [text for text in TEXTS if text in heldout] == heldout
    assert sorted(train + heldout) == sorted(TEXTS)
    assert (manifest.train.documents, manifest.heldout.documents) == (len(train), len(heldout))
    assert manifest.heldout_rule == "documents"
    assert manifest.train.windows == (manifest.train.tokens - 1) // 16
    assert verify_corpus(out) == manifest == Manifest.load(out)
    assert sorted(path.name for path in out.iterdir()) == [
        "heldout.bin",
        "manifest.json",
        "tokenizer.json",
        "train.bin",
    ]


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "jsonl.zst", "parquet"])
def test_every_format_gives_the_same_tokens(
    ending: str, tmp_path: Path, articles: Path, out: Path, many_shards: BuildOptions
) -> None:
    records = tmp_path / f"records.{ending}"
    content = jsonl(TEXTS)
    if ending == "parquet":
        pyarrow = pytest.importorskip("pyarrow", reason="needs the extra `parquet`")
        parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra `parquet`")
        parquet.write_table(pyarrow.table({"id": range(40), "text": TEXTS}), records, row_group_size=7)
    elif ending == "jsonl.gz":
        records.write_bytes(gzip.compress(content[:3000]) + gzip.compress(content[3000:]))
    elif ending == "jsonl.zst":
        frames = [zstandard.ZstdCompressor().compress(part) for part in (content[:3000], content[3000:])]
        records.write_bytes(b"".join(frames))
    else:
        records.write_bytes(content)
    manifest = build([records], out, many_shards)
    assert manifest.content_sha256 == build([articles], tmp_path / "plain", many_shards).content_sha256
    assert [(source.name, source.documents) for source in manifest.sources] == [(records.name, 40)]


def test_a_source_tree_leaves_out_what_is_not_text(tmp_path: Path, out: Path, options: BuildOptions) -> None:
    tree = tmp_path / "tree"
    for number in range(8):
        write(tree / f"pkg{number}" / "code.py", TEXTS[number])
    write(tree / "pkg0" / "__pycache__" / "code.txt", "cached " * 50)
    write(tree / ".git" / "config", "hidden " * 50)
    write(tree / ".env", "secret " * 50)
    write(tree / "logo.png", b"\x89PNG\0\0")
    write(tree / "latin.txt", "caf\xe9".encode("latin-1"))
    write(tree / "late.txt", b"a" * 70_000 + b"\xff")
    write(tree / "empty.py", "")
    write(tree / "blank.py", " \n")
    (tree / "nowhere").symlink_to(tmp_path / "missing")
    manifest = build([tree], out, options)
    assert sorted(texts_of(out)) == sorted(TEXTS[:8])
    (source,) = manifest.sources
    assert (source.documents, source.empty, source.skipped) == (8, 1, 3)


def test_the_output_may_lie_inside_the_input(articles: Path, options: BuildOptions) -> None:
    out = articles / "corpus"
    first = build([articles], out, options)
    reports: list[BuildProgress] = []
    assert build([articles], out, options, reports) == first
    assert reports[-1].phase == "unchanged"


def test_duplicates_are_dropped_or_kept_on_one_side(tmp_path: Path, out: Path, options: BuildOptions) -> None:
    source = write(tmp_path / "twice.jsonl", jsonl(TEXTS + TEXTS[:10]))
    manifest = build([source], out, options)
    assert (manifest.duplicates, manifest.duplicates_dropped) == (10, 10)
    assert sorted(texts_of(out)) == sorted(TEXTS)
    kept = build([source], tmp_path / "kept", replace(options, keep_duplicates=True))
    assert (kept.duplicates, kept.duplicates_dropped) == (10, 0)
    train, heldout = (packed_documents(tmp_path / "kept", split) for split in ("train", "heldout"))
    assert len(train) + len(heldout) == 50
    assert not [tokens for tokens in heldout if tokens in train]


def test_the_held_out_documents_do_not_depend_on_order(tmp_path: Path, out: Path, options: BuildOptions) -> None:
    build([write(tmp_path / "a.jsonl", jsonl(TEXTS))], out, options)
    build([write(tmp_path / "b.jsonl", jsonl(TEXTS[::-1]))], tmp_path / "other", options)
    assert packed_documents(out, "heldout") == packed_documents(tmp_path / "other", "heldout")[::-1]


def test_two_documents_are_enough_for_both_splits(tmp_path: Path, out: Path, options: BuildOptions) -> None:
    manifest = build([write(tmp_path / "two.jsonl", jsonl(TEXTS[:2]))], out, replace(options, heldout=0.001))
    assert (manifest.train.documents, manifest.heldout.documents) == (1, 1)
    assert manifest.heldout.windows >= 1
    assert manifest.heldout_rule == "documents"


def test_a_single_document_is_cut_near_its_end(tmp_path: Path, out: Path, options: BuildOptions) -> None:
    text = "".join(TEXTS)
    manifest = build([write(tmp_path / "book.txt", text)], out, options)
    assert manifest.heldout_rule == "tail-of-one-document"
    train, heldout = stream(out, "train"), stream(out, "heldout")
    assert decode(out, train + heldout) == text
    assert len(heldout) == round(0.1 * (len(train) + len(heldout)))


@pytest.mark.parametrize("heldout", [0.001, 0.99])
def test_a_tokenizer_is_trained_on_a_single_document_too(heldout: float, tmp_path: Path, out: Path) -> None:
    book = write(tmp_path / "book.txt", "".join(TEXTS))
    manifest = build([book], out, BuildOptions(vocab=280, seq_len=16, heldout=heldout, workers=1))
    assert manifest.vocab_size == 280
    assert manifest.train.windows and manifest.heldout.windows


def test_a_tokenizer_is_trained_on_a_bounded_sample(articles: Path, tmp_path: Path) -> None:
    options = BuildOptions(vocab=260, seq_len=16, workers=1, shard_bytes=1000, sample_bytes=3000)
    first, second = (build([articles], tmp_path / name, options) for name in "ab")
    assert first == second
    whole = build([articles], tmp_path / "whole", replace(options, sample_bytes=1 << 20))
    assert whole.tokenizer_sha256 != first.tokenizer_sha256


def test_nothing_is_held_out_if_asked(articles: Path, out: Path, options: BuildOptions) -> None:
    manifest = build([articles], out, replace(options, heldout=0.0))
    assert (manifest.heldout.tokens, manifest.heldout_rule) == (0, "none")
    assert open_tokens(out, manifest, "heldout").tolist() == []
    assert verify_corpus(out) == manifest


@pytest.mark.parametrize("vocab", [None, 280])
def test_the_number_of_workers_changes_nothing(
    vocab: int | None, articles: Path, tmp_path: Path, many_shards: BuildOptions
) -> None:
    options = many_shards if vocab is None else replace(many_shards, tokenizer=None, vocab=vocab)
    manifests = [build([articles], tmp_path / str(n), replace(options, workers=n)) for n in (1, 3)]
    assert manifests[0] == manifests[1]
    files = [[(tmp_path / n / name).read_bytes() for name in ("train.bin", "tokenizer.json")] for n in "13"]
    assert files[0] == files[1]


def test_the_place_of_the_inputs_changes_nothing(articles: Path, tmp_path: Path, options: BuildOptions) -> None:
    elsewhere = tmp_path / 'it\'s a "place"' / "größe 日本 %s {x}" / "articles"
    elsewhere.parent.mkdir(parents=True)
    first = build([articles], tmp_path / "out", options)
    articles.rename(elsewhere)
    second = build([elsewhere], elsewhere.parent / "out", options)
    assert first == second
    assert str(tmp_path) not in first.model_dump_json()


def test_what_looks_like_a_special_token_is_text(tmp_path: Path, out: Path, options: BuildOptions) -> None:
    texts = [f"{text}<|endoftext|>{text}" for text in TEXTS]
    manifest = build([write(tmp_path / "a.jsonl", jsonl(texts))], out, options)
    assert manifest.train.documents + manifest.heldout.documents == len(packed_documents(out, "train")) + len(
        packed_documents(out, "heldout")
    )
    assert sorted(texts_of(out)) == sorted(texts)


def test_a_long_document_has_the_tokens_of_its_whole_text(tmp_path: Path, out: Path, options: BuildOptions) -> None:
    text = "".join(f"{article(n)}\n\n" for n in range(900))
    assert len(text) > 2**18
    build([write(tmp_path / "long.txt", "\ufeff" + text)], out, options)
    assert stream(out, "train") + stream(out, "heldout") == encode(out, text)


def test_a_large_vocabulary_is_stored_in_four_bytes(articles: Path, out: Path, options: BuildOptions) -> None:
    from tokenizers import Tokenizer

    assert options.tokenizer
    tokenizer = Tokenizer.from_file(str(options.tokenizer))
    tokenizer.add_tokens([f"<unused-{n}>" for n in range(66_000)])
    large = articles.parent / "large.json"
    tokenizer.save(str(large))
    manifest = build([articles], out, replace(options, tokenizer=large))
    assert (manifest.dtype, manifest.vocab_size) == ("uint32", 66_300)
    assert sorted(texts_of(out)) == sorted(TEXTS)


def test_a_tokenizer_file_that_cuts_pads_and_frames_is_used_plain(
    articles: Path, tmp_path: Path, options: BuildOptions
) -> None:
    from tokenizers import Tokenizer, processors

    assert options.tokenizer
    tokenizer = Tokenizer.from_file(str(options.tokenizer))
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8)
    tokenizer.post_processor = processors.TemplateProcessing("<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)])
    tokenizer.save(str(tmp_path / "framing.json"), pretty=True)
    framed = build([articles], tmp_path / "framed", replace(options, tokenizer=tmp_path / "framing.json"))
    plain = build([articles], tmp_path / "plain", options)
    assert framed.content_sha256 == plain.content_sha256
    assert framed.tokenizer_sha256 != plain.tokenizer_sha256


def test_the_tokenizer_digest_ignores_the_layout_of_its_file(
    articles: Path, tmp_path: Path, options: BuildOptions
) -> None:
    from tokenizers import Tokenizer

    Tokenizer.from_file(str(options.tokenizer)).save(str(tmp_path / "pretty.json"), pretty=True)
    pretty = build([articles], tmp_path / "a", replace(options, tokenizer=tmp_path / "pretty.json"))
    assert pretty == build([articles], tmp_path / "b", options)
    assert pretty.tokenizer_sha256 == hashlib.sha256((tmp_path / "a" / "tokenizer.json").read_bytes()).hexdigest()


def test_seq_len_is_part_of_the_identity(articles: Path, tmp_path: Path, options: BuildOptions) -> None:
    first = build([articles], tmp_path / "a", options)
    second = build([articles], tmp_path / "b", replace(options, seq_len=17))
    assert first.train.sha256 == second.train.sha256
    assert first.content_sha256 != second.content_sha256


def test_many_inputs_share_a_line_of_the_manifest(articles: Path, out: Path, options: BuildOptions) -> None:
    inputs = [*sorted(articles.iterdir()), *(write(articles / f"more-{n}.md", article(f"more {n}")) for n in range(20))]
    manifest = build(inputs, out, options)
    assert [source.name for source in manifest.sources[-2:]] == ["more-9.md", "(10 more)"]
    assert sum(source.documents for source in manifest.sources) == 60


def test_the_standard_library_is_there() -> None:
    sources = stdlib_sources()
    assert 4e6 < sum(path.stat().st_size for path in sources) < 12e6
    assert len(set(sources)) == len(sources)
    assert {"json/decoder.py", "dataclasses.py"} <= {"/".join(path.parts[-2:]) for path in sources} | {
        path.name for path in sources
    }


def test_the_manifest_needs_no_heavy_import() -> None:
    program = "import sys, crosstrain.corpus.manifest; print(sorted({'numpy', 'tokenizers'} & set(sys.modules)))"
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}; {program}"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"
