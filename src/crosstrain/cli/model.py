"""`crosstrain init`, `crosstrain export`, `crosstrain generate`: from a corpus to a run file, from a run to a model."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from crosstrain.cli.amounts import between

RunFile = Annotated[Path, typer.Argument(metavar="RUN.toml", help="The run file, on the coordinator's machine.")]
WhichGeneration = Annotated[int | None, typer.Option(help="Which generation; default: the newest.", show_default=False)]


class Size(StrEnum):
    """Model sizes that `init` knows."""

    TINY = "tiny"
    SMALL = "60m"
    QWEN3_06B = "0.6b"


def init(
    corpus: Annotated[Path, typer.Option(metavar="DIR", help="Corpus made by `crosstrain corpus build`.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The run file to write.")] = Path("RUN.toml"),
    size: Annotated[Size, typer.Option(help="Size of the Qwen3 model.")] = Size.QWEN3_06B,
    name: Annotated[str, typer.Option(help="Name of the run.")] = "run",
) -> None:
    """Write a commented RUN.toml for a corpus."""
    from crosstrain.corpus.manifest import Manifest
    from crosstrain.runfile import write_run_file

    manifest = Manifest.load(corpus)
    place, beside = corpus.absolute(), out.absolute().parent
    # Relative where that is possible: the same run file goes to every site, with the corpus beside it.
    place = place.relative_to(beside) if place.is_relative_to(beside) else place
    write_run_file(out, name, size.value, place, manifest)
    typer.echo(str(out))


def export(
    run: RunFile,
    out: Annotated[Path, typer.Option(metavar="DIR", help="New directory for the checkpoint.")],
    generation: WhichGeneration = None,
) -> None:
    """Write the global model as a Hugging Face Qwen3 checkpoint (float32 safetensors, config, tokenizer)."""
    from crosstrain.assembly import open_run
    from crosstrain.export import export_checkpoint

    typer.echo(str(export_checkpoint(open_run(run), out, generation)))


def generate(
    run: RunFile,
    prompt: Annotated[str, typer.Option(help="Text to continue.")] = "",
    tokens: Annotated[int, typer.Option(min=1, help="How many tokens to add.")] = 100,
    temperature: Annotated[
        float,
        typer.Option(callback=between(0.0, 1000.0), help="Spread of the sampling; 0 takes the most likely token."),
    ] = 0.8,
    seed: Annotated[int, typer.Option(help="Seed of the sampling.")] = 0,
    generation: WhichGeneration = None,
) -> None:
    """Continue a text with the global model; needs the `train` extra."""
    from crosstrain.assembly import open_run
    from crosstrain.export import generate_text

    typer.echo(generate_text(open_run(run), generation, prompt, tokens, temperature, seed))
