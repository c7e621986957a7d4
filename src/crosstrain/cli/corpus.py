"""`crosstrain corpus`: build, verify, info. Data goes to stdout, progress to stderr."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crosstrain.cli.amounts import between
from crosstrain.domain.plural import counted

if TYPE_CHECKING:
    from crosstrain.corpus.manifest import Manifest
    from crosstrain.corpus.options import BuildProgress

app = typer.Typer(help="Turn text into a corpus that every site can hold.", no_args_is_help=True)

_LINE_EVERY_S = 5.0

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of the corpus.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the manifest as JSON.")]


@app.command()
def build(
    inputs: Annotated[
        list[Path],
        typer.Argument(metavar="INPUT...", help="Text files, directories, .jsonl, .jsonl.gz, .jsonl.zst, .parquet."),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Directory to build the corpus in.")],
    tokenizer: Annotated[Path | None, typer.Option(metavar="FILE", help="Hugging Face tokenizer.json.")] = None,
    vocab: Annotated[int | None, typer.Option(help="Train a byte-level BPE with this many tokens instead.")] = None,
    seq_len: Annotated[int, typer.Option(help="Tokens of a window that are predicted.")] = 1024,
    heldout: Annotated[
        float, typer.Option(callback=between(0.0, 1.0), help="Fraction of documents to hold out; 0 for none.")
    ] = 0.02,
    field: Annotated[str, typer.Option(help="Text field of jsonl records and parquet rows.")] = "text",
    eot: Annotated[
        str | None, typer.Option(help="End-of-text token of --tokenizer, if it has an unusual name.")
    ] = None,
    keep_duplicates: Annotated[bool, typer.Option("--keep-duplicates", help="Keep equal documents.")] = False,
    workers: Annotated[int | None, typer.Option(help="Processes; default: one per core.", show_default=False)] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what DIR holds.")] = False,
    as_json: AsJson = False,
) -> None:
    """Pack text into DIR/train.bin and DIR/heldout.bin. The same command goes on after an interruption."""
    from crosstrain.corpus.build import build_corpus
    from crosstrain.corpus.options import BuildOptions

    options = BuildOptions(tokenizer, vocab, seq_len, heldout, field, eot, keep_duplicates, workers, force)
    with progress() as report:
        manifest = build_corpus(inputs, out, options, report)
    _print(manifest, as_json)


@app.command()
def verify(directory: Directory, as_json: AsJson = False) -> None:
    """Recompute every digest and count of a corpus; exit code 6 if one does not agree."""
    from crosstrain.corpus.verify import verify_corpus

    manifest = verify_corpus(directory)
    if as_json:
        _print(manifest, as_json)
    else:
        typer.echo(f"{directory}: sound, content {manifest.content_sha256}")


@app.command()
def info(directory: Directory, as_json: AsJson = False) -> None:
    """Show what a corpus holds."""
    from crosstrain.corpus.manifest import Manifest

    _print(Manifest.load(directory), as_json)


def _print(manifest: Manifest, as_json: bool) -> None:
    if as_json:
        typer.echo(manifest.model_dump_json(indent=2))
        return
    rule = {
        "documents": "by document",
        "tail-of-one-document": "the end of the longest document, because whole documents did not suffice",
        "none": "nothing held out",
    }[manifest.heldout_rule]
    typer.echo(f"content     {manifest.content_sha256}")
    typer.echo(f"tokenizer   {manifest.tokenizer_sha256}")
    typer.echo(f"vocabulary  {counted(manifest.vocab_size, 'token', spec=',')}, stored as {manifest.dtype}")
    typer.echo(f"seq_len     {manifest.seq_len}")
    for name, split in (("train", manifest.train), ("heldout", manifest.heldout)):
        typer.echo(
            f"{name:<11} {counted(split.tokens, 'token', spec=',')}, "
            f"{counted(split.windows, 'window', spec=',')}, {counted(split.documents, 'document', spec=',')}"
            + (f" ({rule})" if name == "heldout" else "")
        )
    typer.echo(f"duplicates  {manifest.duplicates:,} found, {manifest.duplicates_dropped:,} dropped")
    for source in manifest.sources:
        left_out = [
            f"{count:,} {what}" for what, count in (("empty", source.empty), ("not text", source.skipped)) if count
        ]
        typer.echo(
            f"source      {source.name}: {counted(source.documents, 'document', spec=',')}, {_size(source.bytes)}"
            + (f" (left out: {', '.join(left_out)})" if left_out else "")
        )


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.4g} TB"


@contextlib.contextmanager
def progress() -> Iterator[Callable[[BuildProgress], None]]:
    """A bar where a person watches, otherwise a line per phase and one every few seconds."""
    if not sys.stderr.isatty():
        yield _Lines().report
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("starting", total=None, state="")
        ends = _Lines()

        def report(state: BuildProgress) -> None:
            if state.phase in ("done", "unchanged"):
                ends.report(state)
                return
            total = state.total_bytes or None
            bars.update(task, description=state.phase, total=total, completed=state.done_bytes, state=_numbers(state))

        yield report


class _Lines:
    def __init__(self) -> None:
        self._phase = ""
        self._printed_s = 0.0

    def report(self, state: BuildProgress) -> None:
        if state.phase == self._phase and state.elapsed_s - self._printed_s < _LINE_EVERY_S:
            return
        self._phase, self._printed_s = state.phase, state.elapsed_s
        if state.phase == "unchanged":
            typer.echo("The directory already holds this corpus; nothing to do.", err=True)
        elif state.phase != "done":
            typer.echo(f"{state.phase}: {_numbers(state)}".rstrip(": "), err=True)


def _numbers(state: BuildProgress) -> str:
    parts = []
    if state.total_bytes:
        parts.append(f"{_size(state.done_bytes)} of {_size(state.total_bytes)}")
    elif state.elapsed_s >= 1:
        parts.append(f"{state.elapsed_s:.0f} s so far")
    if state.reused_shards:
        parts.append(f"{state.reused_shards} of {state.total_shards} parts from an earlier build")
    if state.rate:
        parts.append(f"{_size(state.rate)}/s")
    if state.eta_s is not None and state.done_bytes < state.total_bytes:
        parts.append(f"{state.eta_s:.0f} s left")
    return ", ".join(parts)
