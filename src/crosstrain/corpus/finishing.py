"""The end of a build: finished shards into token files and the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from crosstrain import __version__
from crosstrain.corpus.durable import write_atomically
from crosstrain.corpus.inputs import Source, no_text
from crosstrain.corpus.manifest import TOKENIZER, BuildRecord, Manifest, SourceRecord, SplitRecord, digest_content
from crosstrain.corpus.meter import Meter
from crosstrain.corpus.options import BuildOptions
from crosstrain.corpus.packing import pack
from crosstrain.corpus.shards import Rows, ShardFile
from crosstrain.corpus.split import Assignment, assign
from crosstrain.corpus.tokenizer import TokenizerFile

_LISTED_SOURCES = 50


def finish(
    out: Path,
    sources: Sequence[Source],
    shards: Sequence[ShardFile],
    tokenizer: TokenizerFile,
    record: BuildRecord,
    options: BuildOptions,
    meter: Meter,
) -> Manifest:
    """Packs the shards and writes the manifest, the last file of all.

    Raises:
        UsageError: there is too little text.
        EnvironmentFault: a file cannot be written.
        IntegrityError: a shard is damaged.
    """
    meter.begin("packing", sum(shard.path.stat().st_size for shard in shards), 0)
    tables = [shard.documents() for shard in shards]
    table = np.concatenate(tables)
    if not len(table):
        raise no_text()
    assignment = assign(table, options.heldout, options.keep_duplicates, options.seq_len)
    train, heldout = pack(
        out, list(zip(shards, tables, strict=True)), assignment, tokenizer, options.seq_len, meter.advance
    )
    write_atomically(out / TOKENIZER, tokenizer.content)
    manifest = _manifest(train, heldout, assignment, tokenizer, record, options, _summary(sources, shards, table))
    manifest.save(out)
    return manifest


def _manifest(
    train: SplitRecord,
    heldout: SplitRecord,
    assignment: Assignment,
    tokenizer: TokenizerFile,
    record: BuildRecord,
    options: BuildOptions,
    sources: tuple[SourceRecord, ...],
) -> Manifest:
    return Manifest(
        seq_len=options.seq_len,
        dtype=tokenizer.dtype,
        vocab_size=tokenizer.vocab_size,
        eot_token_id=tokenizer.eot,
        train=train,
        heldout=heldout,
        heldout_rule=assignment.rule,
        tokenizer_sha256=tokenizer.sha256,
        content_sha256=digest_content(options.seq_len, tokenizer.dtype, train, heldout),
        sources=sources,
        duplicates=assignment.duplicates,
        duplicates_dropped=0 if options.keep_duplicates else assignment.duplicates,
        build=record,
        created_with=__version__,
    )


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
