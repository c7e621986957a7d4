"""Builds a corpus: scan, tokenizer, shards, pack, manifest. Every step can be repeated, and the manifest comes last."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from crosstrain import __version__
from crosstrain.clock import Clock, SystemClock
from crosstrain.corpus.durable import write_atomically
from crosstrain.corpus.inputs import Part, Source, cut_sources, find_sources
from crosstrain.corpus.manifest import TOKENIZER, BuildRecord, Manifest, SourceRecord, digest_content
from crosstrain.corpus.meter import Meter
from crosstrain.corpus.options import BuildOptions, BuildProgress, check_options
from crosstrain.corpus.packing import pack
from crosstrain.corpus.records import Advance
from crosstrain.corpus.sampling import sample
from crosstrain.corpus.shards import (
    Rows,
    ShardFile,
    digest_parts,
    encode_shard,
    group_parts,
    shard_key,
)
from crosstrain.corpus.split import assign
from crosstrain.corpus.tokenizer import END_OF_TEXT, Encoder, TokenizerFile, load_tokenizer, train_tokenizer
from crosstrain.corpus.workers import Workers
from crosstrain.corpus.workspace import Workspace
from crosstrain.errors import UsageError

_LISTED_SOURCES = 50

Group = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class _EncodeTask:
    """What a worker needs for one shard; the tokenizer by its path, because it can be 10 MB and is read once."""

    group: Group
    field: str
    tokenizer: Path
    tokenizer_sha256: str
    eot: int
    dtype: str
    path: Path


def build_corpus(
    inputs: Sequence[Path],
    out: Path,
    options: BuildOptions,
    progress: Callable[[BuildProgress], None],
    clock: Clock | None = None,
) -> Manifest:
    """Builds the corpus at `out`, goes on with an interrupted build, or finds that there is nothing to do.

    Called from a script, with more than one worker, the call must be under `if __name__ == "__main__":`.

    Raises:
        UsageError: an option, an input or the tokenizer is not usable, or `out` holds something else.
        EnvironmentFault: `out` cannot be written, or a worker was killed.
        IntegrityError: what `out` holds is damaged.
    """
    check_options(options)
    sources = find_sources(inputs, ignore=out)
    parts, shard_bytes = cut_sources(sources, options.field, options.shard_bytes)
    if not parts:
        raise UsageError("The inputs hold no documents with text.", "name files or directories that do")
    groups = group_parts(parts, shard_bytes)
    given = load_tokenizer(options.tokenizer, options.eot) if options.tokenizer else None
    wanted = _content_options(options, given)
    workspace = Workspace(out)
    if not options.force:
        workspace.check_options(wanted)
    meter = Meter(progress, clock or SystemClock())
    with Workers(min(options.worker_count, len(groups))) as workers:
        contents = _scan(workers, groups, meter)
        record = BuildRecord(options=wanted, inputs_sha256=hashlib.sha256("".join(contents).encode()).hexdigest())
        if not options.force and (manifest := workspace.complete(record)):
            meter.say("unchanged")
            return manifest
        with workspace.opened(wanted, options.force):
            tokenizer = given or _train(workers, groups, record, options, workspace, meter)
            shards = _encode(workers, groups, contents, tokenizer, options, workspace, meter)
            manifest = _finish(out, sources, shards, tokenizer, record, options, meter)
            workspace.close()
    meter.say("done")
    return manifest


def _content_options(options: BuildOptions, given: TokenizerFile | None) -> dict[str, str | int | float | bool]:
    return {
        "tokenizer": f"sha256:{given.sha256}" if given else f"trained, vocabulary {options.vocab}",
        "eot": given.eot if given else END_OF_TEXT,
        "seq_len": options.seq_len,
        "heldout": options.heldout,
        "field": options.field,
        "keep_duplicates": options.keep_duplicates,
    }


def _scan(workers: Workers, groups: Sequence[Group], meter: Meter) -> list[str]:
    contents = [""] * len(groups)
    meter.begin("scanning", sum(part.bytes for group in groups for part in group), len(groups))

    def finished(number: int, content: str) -> None:
        contents[number] = content
        meter.finish_shard()

    workers.run(_scan_group, groups, finished, meter.advance)
    return contents


def _scan_group(group: Group, advance: Advance) -> str:
    content = digest_parts(group)
    advance(sum(part.bytes for part in group))
    return content


def _train(
    workers: Workers,
    groups: Sequence[Group],
    record: BuildRecord,
    options: BuildOptions,
    workspace: Workspace,
    meter: Meter,
) -> TokenizerFile:
    facts = [record.model_dump(), options.sample_bytes, options.shard_bytes]
    path = workspace.tokenizer(hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest())
    if not path.exists():
        meter.begin("training the tokenizer", 0, 0)
        # In a worker process because native training cannot be interrupted by Ctrl-C, and a process can.
        workers.run(
            _train_on_sample,
            [(groups, options)],
            lambda _, trained: write_atomically(path, trained.content),
            meter.advance,
        )
    return load_tokenizer(path, END_OF_TEXT)


def _train_on_sample(task: tuple[Sequence[Group], BuildOptions], _: Advance) -> TokenizerFile:
    groups, options = task
    assert options.vocab is not None
    texts = sample(groups, options)
    if not texts:
        raise _no_text()
    return train_tokenizer(texts, options.vocab)


def _encode(
    workers: Workers,
    groups: Sequence[Group],
    contents: Sequence[str],
    tokenizer: TokenizerFile,
    options: BuildOptions,
    workspace: Workspace,
    meter: Meter,
) -> list[ShardFile]:
    paths = [workspace.shard(shard_key(content, tokenizer, options.field)) for content in contents]
    shared = workspace.tokenizer(tokenizer.sha256)
    write_atomically(shared, tokenizer.content)
    meter.begin("encoding", sum(part.bytes for group in groups for part in group), len(groups))
    todo = []
    for group, path in zip(groups, paths, strict=True):
        if path.exists():
            meter.reuse_shard(sum(part.bytes for part in group))
        else:
            todo.append(
                _EncodeTask(group, options.field, shared, tokenizer.sha256, tokenizer.eot, tokenizer.dtype, path)
            )
    workers.run(_encode_group, todo, lambda *_: meter.finish_shard(), meter.advance)
    return [ShardFile(path, tokenizer.dtype) for path in paths]


def _encode_group(task: _EncodeTask, advance: Advance) -> None:
    encoder = _encoder(task.tokenizer, task.tokenizer_sha256)
    encode_shard(task.group, task.field, task.eot, task.dtype, encoder, task.path, advance)


@lru_cache(maxsize=1)
def _encoder(path: Path, sha256: str) -> Encoder:
    # By its digest too: the same path can hold another tokenizer in the next build of a long-lived process.
    content = path.read_bytes()
    assert hashlib.sha256(content).hexdigest() == sha256
    return Encoder(content)


def _finish(
    out: Path,
    sources: Sequence[Source],
    shards: Sequence[ShardFile],
    tokenizer: TokenizerFile,
    record: BuildRecord,
    options: BuildOptions,
    meter: Meter,
) -> Manifest:
    meter.begin("packing", sum(shard.path.stat().st_size for shard in shards), 0)
    tables = [shard.documents() for shard in shards]
    table = np.concatenate(tables)
    if not len(table):
        raise _no_text()
    assignment = assign(table, options.heldout, options.keep_duplicates, options.seq_len)
    train, heldout = pack(
        out, list(zip(shards, tables, strict=True)), assignment, tokenizer, options.seq_len, meter.advance
    )
    write_atomically(out / TOKENIZER, tokenizer.content)
    manifest = Manifest(
        seq_len=options.seq_len,
        dtype=tokenizer.dtype,
        vocab_size=tokenizer.vocab_size,
        eot_token_id=tokenizer.eot,
        train=train,
        heldout=heldout,
        heldout_rule=assignment.rule,
        tokenizer_sha256=tokenizer.sha256,
        content_sha256=digest_content(options.seq_len, tokenizer.dtype, train, heldout),
        sources=_summary(sources, shards, table),
        duplicates=assignment.duplicates,
        duplicates_dropped=0 if options.keep_duplicates else assignment.duplicates,
        build=record,
        created_with=__version__,
    )
    manifest.save(out)
    return manifest


def _summary(sources: Sequence[Source], shards: Sequence[ShardFile], table: Rows) -> tuple[SourceRecord, ...]:
    """One record per input, of which there may be thousands (a shell pattern): those past the fiftieth share one."""
    documents = np.bincount(table["source"], minlength=len(sources))
    sizes = np.bincount(table["source"], weights=table["bytes"], minlength=len(sources))
    records = [
        SourceRecord(
            name=source.name,
            documents=int(documents[number]),
            bytes=int(sizes[number]),
            empty=sum(shard.shard.empty.get(str(number), 0) for shard in shards),
            skipped=source.skipped + sum(shard.shard.skipped.get(str(number), 0) for shard in shards),
        )
        for number, source in enumerate(sources)
    ]
    rest = records[_LISTED_SOURCES:]
    if not rest:
        return tuple(records)
    together = SourceRecord(
        name=f"({len(rest)} more)",
        documents=sum(record.documents for record in rest),
        bytes=sum(record.bytes for record in rest),
        empty=sum(record.empty for record in rest),
        skipped=sum(record.skipped for record in rest),
    )
    return (*records[:_LISTED_SOURCES], together)


def _no_text() -> UsageError:
    return UsageError("The inputs hold no documents with text.", "name files or directories that do")
