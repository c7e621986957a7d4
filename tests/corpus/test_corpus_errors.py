"""Every error says what was found and leaves nothing that looks complete."""

from __future__ import annotations

import gzip
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from corpora import article, build, jsonl, write

from crosstrain.corpus.options import BuildOptions
from crosstrain.errors import EnvironmentFault, IntegrityError, UsageError

TEXTS = [article(n) for n in range(40)]
GOOD = jsonl(TEXTS)
ZSTD = zstandard.ZstdCompressor(write_checksum=True)


def flip(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", b"", "empty.txt is empty"),
        ("blank.txt", b" \n\n", "no documents with text"),
        ("blank.jsonl", jsonl([" ", ""]), "no documents with text"),
        ("photo.png", b"PNG\0", "not UTF-8 text: a NUL byte at byte 3"),
        ("latin.txt", "caf\xe9 au lait".encode("latin-1"), r"not UTF-8 text: invalid UTF-8 at byte 3 \("),
        ("late.txt", b"a" * 300_000 + b"\xe9 ", r"invalid UTF-8 at byte 300000 \("),
        ("cut.txt", b"a" * 70_000 + b"\xe2\x82", "invalid UTF-8 at byte 70000 .the file ends inside a character"),
        ("text.gz", gzip.compress(b"text", mtime=0), "not UTF-8 text"),
        ("bad.jsonl", GOOD + b"{not json}\n" + GOOD, r"bad.jsonl:41: not JSON"),
        ("utf.jsonl", GOOD + b'{"text": "\xff"}\n', r"utf.jsonl:41: not JSON"),
        ("list.jsonl", b"[1]\n", "list.jsonl:1: expected a JSON object, found list"),
        ("other.jsonl", GOOD + b'\n{"body": "x", "id": 1}\n', "other.jsonl:42: .*'text' is not a string: it has 'body', 'id'"),
        ("null.jsonl", b'{"text": null}\n', "null.jsonl:1: .*it is NoneType"),
        ("half.jsonl", b'{"text": "\\ud800"}\n', "half.jsonl:1: .*surrogate"),
        ("bad.jsonl.gz", gzip.compress(GOOD + b"{", mtime=0), "bad.jsonl.gz:41: not JSON"),
        ("plain.jsonl.gz", GOOD, "not a sound gzip file"),
        ("cut.jsonl.gz", gzip.compress(GOOD, mtime=0)[:-20], "not a sound gzip file"),
        ("flip.jsonl.gz", flip(gzip.compress(GOOD, mtime=0), 400), "not a sound gzip file|not JSON"),
        ("plain.jsonl.zst", GOOD, "not a sound zstd file"),
        ("cut.jsonl.zst", ZSTD.compress(GOOD)[:-20], "not a sound zstd file: the file ends inside a frame"),
        ("flip.jsonl.zst", flip(ZSTD.compress(GOOD), 400), "not a sound zstd file|not JSON"),
        ("short.txt", b"seven words do not fill a window", r"too short: found \d+ tokens, and 130 are needed"),
    ],
)  # fmt: skip
def test_an_unusable_input_is_named(
    name: str, content: bytes, message: str, tmp_path: Path, out: Path, options: BuildOptions
) -> None:
    options = replace(options, seq_len=64, shard_bytes=500)
    with pytest.raises(UsageError, match=message) as caught:
        build([write(tmp_path / name, content)], out, options)
    assert caught.value.hint
    assert not (out / "manifest.json").exists()
    assert not list(out.rglob("*.part"))


def test_a_worker_process_reports_the_same(tmp_path: Path, out: Path, options: BuildOptions) -> None:
    bad = write(tmp_path / "bad.jsonl", GOOD + b"{not json}\n" + GOOD)
    with pytest.raises(UsageError, match=r"bad.jsonl:41: not JSON") as caught:
        build([bad], out, replace(options, shard_bytes=500, workers=2))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab": 256, "tokenizer": None}, "at least 257 tokens .* --vocab is 256"),
        ({"vocab": 50_000, "tokenizer": None}, "too little for 50000 tokens: training ends at"),
        ({"vocab": 300}, "needs one tokenizer"),
        ({"tokenizer": None}, "needs one tokenizer"),
        ({"seq_len": 0}, "--seq-len must be at least 1"),
        ({"heldout": 1.0}, "--heldout is a fraction"),
        ({"heldout": float("nan")}, "--heldout is a fraction"),
        ({"workers": 0}, "--workers must be at least 1"),
        ({"eot": "<stop>"}, r"no end-of-text token named <stop>"),
        ({"field": "body", "tokenizer": None, "vocab": 280}, "'body' is not a string"),
        ({"field": "body"}, "'body' is not a string"),
    ],
)
def test_an_unusable_option_is_named(
    change: dict[str, object], message: str, tmp_path: Path, out: Path, options: BuildOptions
) -> None:
    with pytest.raises(UsageError, match=message):
        build([write(tmp_path / "a.jsonl", GOOD)], out, replace(options, **change))  # type: ignore[arg-type]
    assert not (out / "manifest.json").exists()


@pytest.mark.parametrize("content", [None, b"{}", b"not json", b"\xff\xfe", b'{"model": {"type": "BPE"}}'])
def test_an_invalid_tokenizer_file_is_named(
    content: bytes | None, tmp_path: Path, articles: Path, out: Path, options: BuildOptions
) -> None:
    path = tmp_path / "odd tokenizer.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=r"odd tokenizer\.json"):
        build([articles], out, replace(options, tokenizer=path))
    assert not out.exists()


def test_inputs_that_are_not_there(tmp_path: Path, out: Path, options: BuildOptions) -> None:
    with pytest.raises(UsageError, match=r"missing\.txt does not exist"):
        build([tmp_path / "missing.txt"], out, options)
    with pytest.raises(UsageError, match="at least one input"):
        build([], out, options)
    with pytest.raises(UsageError, match="neither a file nor a directory"):
        build([Path(os.devnull)], out, options)
    (tmp_path / "hollow").mkdir()
    with pytest.raises(UsageError, match="no documents with text"):
        build([tmp_path / "hollow"], out, options)
    assert not out.exists()


def test_parquet_files_are_checked(tmp_path: Path, out: Path, options: BuildOptions) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra `parquet`")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra `parquet`")
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": [*TEXTS, None], "id": range(41)}), path, row_group_size=9)
    sound = path.read_bytes()
    with pytest.raises(UsageError, match=r"row 41: the column 'text' is null"):
        build([path], out, options)
    with pytest.raises(UsageError, match="no column 'body'; it has 'text', 'id'"):
        build([path], out, replace(options, field="body", force=True))
    with pytest.raises(UsageError, match="holds int64, not strings"):
        build([path], out, replace(options, field="id", force=True))
    for damaged in (b"no parquet at all", sound[:-30], sound[:50] + bytes(1500) + sound[1550:]):
        path.write_bytes(damaged)
        with pytest.raises(UsageError, match="not a sound parquet file"):
            build([path], out, replace(options, force=True))


def test_parquet_without_pyarrow_names_the_extra(
    tmp_path: Path, out: Path, options: BuildOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match="pyarrow is not installed") as caught:
        build([write(tmp_path / "a.parquet", b"PAR1")], out, options)
    assert "crosstrain[parquet]" in caught.value.hint


def test_another_corpus_is_not_overwritten(articles: Path, out: Path, options: BuildOptions) -> None:
    first = build([articles], out, options)
    with pytest.raises(UsageError, match="with other options: seq_len 16, asked for 8") as caught:
        build([articles], out, replace(options, seq_len=8))
    assert "--force" in caught.value.hint
    write(articles / "new.txt", article("new"))
    with pytest.raises(UsageError, match="corpus of other inputs"):
        build([articles], out, options)
    second = build([articles], out, replace(options, seq_len=8, force=True))
    assert second.seq_len == 8
    assert second.content_sha256 != first.content_sha256


def test_foreign_files_are_not_touched(articles: Path, out: Path, options: BuildOptions) -> None:
    notes = write(out / "notes.md", "mine")
    with pytest.raises(UsageError, match=r"not empty and holds no corpus \(it has notes.md\)"):
        build([articles], out, options)
    build([articles], out, replace(options, force=True))
    assert notes.read_text() == "mine"


@pytest.mark.parametrize("name", ["train.bin", "heldout.bin"])
def test_a_complete_corpus_that_was_cut_is_noticed(name: str, articles: Path, out: Path, options: BuildOptions) -> None:
    build([articles], out, options)
    os.truncate(out / name, 10)
    with pytest.raises(IntegrityError, match=name):
        build([articles], out, options)


def test_an_output_that_is_a_file(articles: Path, out: Path, options: BuildOptions) -> None:
    out.write_text("a file")
    with pytest.raises(UsageError, match="not a directory"):
        build([articles], out, options)
    with pytest.raises(EnvironmentFault, match="cannot be written"):
        build([articles], out / "below", options)


def test_a_read_only_output(articles: Path, read_only: Path, options: BuildOptions) -> None:
    expected = "Read-only file system" if os.geteuid() == 0 else "Permission denied"
    with pytest.raises(EnvironmentFault, match=expected):
        build([articles], read_only, options)


@pytest.mark.parametrize("limit", [2000, 6000])
def test_a_full_disk(limit: int, articles: Path, out: Path, options: BuildOptions) -> None:
    """A limit on the size of a file stands in for a full file system; the first meets a shard, the second train.bin."""
    assert options.tokenizer
    program = (
        "from pathlib import Path\n"
        "from crosstrain.corpus.build import build_corpus\n"
        "from crosstrain.corpus.options import BuildOptions\n"
        "from crosstrain.errors import EnvironmentFault\n"
        f"options = BuildOptions(tokenizer=Path({str(options.tokenizer)!r}), seq_len=16, workers=1, shard_bytes=1000)\n"
        "try:\n"
        f"    build_corpus([Path({str(articles)!r})], Path({str(out)!r}), options, lambda state: None)\n"
        "except EnvironmentFault as error:\n"
        "    print(error.message)\n"
    )
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{program}"]
    limits: Callable[[], None] = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))  # noqa: E731
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limits, check=True)
    assert "cannot be written: File too large" in done.stdout
    assert not (out / "manifest.json").exists()
    assert not list(out.rglob("*.part"))
