"""Builds a corpus: scan, tokenizer, shards, pack, manifest. Every step can be repeated, and the manifest comes last."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from crosstrain.clock import Clock, SystemClock
from crosstrain.corpus.durable import write_atomically
from crosstrain.corpus.finishing import finish
from crosstrain.corpus.inputs import Part, Source, cut_sources, find_sources, no_text
from crosstrain.corpus.manifest import BuildRecord, Manifest
from crosstrain.corpus.meter import Meter
from crosstrain.corpus.options import BuildOptions, BuildProgress, check_options
from crosstrain.corpus.records import Advance
from crosstrain.corpus.sampling import sample
from crosstrain.corpus.shards import (
    ShardFile,
    digest_parts,
    encode_shard,
    group_parts,
    is_sound,
    shard_key,
)
from crosstrain.corpus.tokenizer import END_OF_TEXT, Encoder, TokenizerFile, load_tokenizer, train_tokenizer
from crosstrain.corpus.workers import Workers
from crosstrain.corpus.workspace import Options, Workspace

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


@dataclass(frozen=True, slots=True)
class _Job:
    """One build: what it reads, how, and where it works."""

    groups: Sequence[Group]
    options: BuildOptions
    workspace: Workspace
    workers: Workers
    meter: Meter

    @property
    def bytes(self) -> int:
        return sum(part.bytes for group in self.groups for part in group)


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
        raise no_text()
    groups = group_parts(parts, shard_bytes)
    given = load_tokenizer(options.tokenizer, options.eot) if options.tokenizer else None
    wanted = _content_options(options, given)
    workspace = Workspace(out)
    if not options.force:
        workspace.check_options(wanted)
    meter = Meter(progress, clock or SystemClock())
    with Workers(min(options.worker_count, len(groups))) as workers:
        return _run(_Job(groups, options, workspace, workers, meter), sources, given, wanted)


def _run(job: _Job, sources: Sequence[Source], given: TokenizerFile | None, wanted: Options) -> Manifest:
    contents = _scan(job)
    record = BuildRecord(options=wanted, inputs_sha256=hashlib.sha256("".join(contents).encode()).hexdigest())
    if not job.options.force and (manifest := job.workspace.complete(record)):
        job.meter.say("unchanged")
        return manifest
    with job.workspace.opened(wanted, job.options.force):
        tokenizer = given or _train(job, record)
        shards = _encode(job, contents, tokenizer)
        manifest = finish(job.workspace.out, sources, shards, tokenizer, record, job.options, job.meter)
        job.workspace.close()
    job.meter.say("done")
    return manifest


def _content_options(options: BuildOptions, given: TokenizerFile | None) -> Options:
    return {
        "tokenizer": f"sha256:{given.sha256}" if given else f"trained, vocabulary {options.vocab}",
        "eot": given.eot if given else END_OF_TEXT,
        "seq_len": options.seq_len,
        "heldout": options.heldout,
        "field": options.field,
        "keep_duplicates": options.keep_duplicates,
    }


def _scan(job: _Job) -> list[str]:
    contents = [""] * len(job.groups)
    job.meter.begin("scanning", job.bytes, len(job.groups))

    def finished(number: int, content: str) -> None:
        contents[number] = content
        job.meter.finish_shard()

    job.workers.run(_scan_group, job.groups, finished, job.meter.advance)
    return contents


def _scan_group(group: Group, advance: Advance) -> str:
    content = digest_parts(group)
    advance(sum(part.bytes for part in group))
    return content


def _train(job: _Job, record: BuildRecord) -> TokenizerFile:
    facts = [record.model_dump(), job.options.sample_bytes, job.options.shard_bytes]
    path = job.workspace.tokenizer(hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest())
    if not path.exists():
        job.meter.begin("training the tokenizer", 0, 0)
        # In a worker process because native training cannot be interrupted by Ctrl-C, and a process can.
        job.workers.run(
            _train_on_sample,
            [(job.groups, job.options)],
            lambda _, trained: write_atomically(path, trained.content),
            job.meter.advance,
        )
    return load_tokenizer(path, END_OF_TEXT)


def _train_on_sample(task: tuple[Sequence[Group], BuildOptions], _: Advance) -> TokenizerFile:
    groups, options = task
    assert options.vocab is not None
    texts = sample(groups, options)
    if not texts:
        raise no_text()
    return train_tokenizer(texts, options.vocab)


def _encode(job: _Job, contents: Sequence[str], tokenizer: TokenizerFile) -> list[ShardFile]:
    field, meter = job.options.field, job.meter
    paths = [job.workspace.shard(shard_key(content, tokenizer, field)) for content in contents]
    shared = job.workspace.tokenizer(tokenizer.sha256)
    write_atomically(shared, tokenizer.content)
    meter.begin("encoding", job.bytes, len(job.groups))
    todo = []
    for group, path in zip(job.groups, paths, strict=True):
        if path.exists() and is_sound(path, tokenizer.dtype):
            meter.reuse_shard(sum(part.bytes for part in group))
        else:
            todo.append(_EncodeTask(group, field, shared, tokenizer.sha256, tokenizer.eot, tokenizer.dtype, path))
    job.workers.run(_encode_group, todo, lambda *_: meter.finish_shard(), meter.advance)
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
