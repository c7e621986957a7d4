"""`crosstrain flower`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Carry the messages of sites through a Flower federation.", no_args_is_help=True)


@app.callback()
def flower() -> None:
    """Carry the messages of sites through a Flower federation."""


@app.command("app")
def write(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new directory; its name may be any.")],
) -> None:
    """Write the Flower app that `flwr run` takes. Needs the extra `flwr` where it runs, in an environment of its own."""
    from crosstrain.flower.app_directory import write_app

    write_app(directory)
    typer.echo(directory)
