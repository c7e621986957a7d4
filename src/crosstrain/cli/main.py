"""The command table, and the one place where an error becomes a message and an exit code."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated

import typer
from typer.core import TyperGroup

from crosstrain import __version__
from crosstrain.cli import (
    batch,
    chaos,
    coordinator,
    corpus,
    demo,
    doctor,
    flower,
    garbage,
    inspect,
    ledger,
    model,
    nginx,
    parse,
    placement,
    relay,
    simulate,
    site,
)
from crosstrain.errors import CrosstrainError

app = typer.Typer(
    name="crosstrain",
    help="Train one language model with small allocations at several supercomputers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    cls=TyperGroup,
)
app.add_typer(corpus.app, name="corpus")
app.add_typer(simulate.app, name="simulate")
app.add_typer(flower.app, name="flower")
app.command("demo")(demo.demo)
app.command("chaos")(chaos.chaos)
app.command("init")(model.init)
app.command("coordinator")(coordinator.coordinator)
app.command("nginx")(nginx.nginx)
app.command("site")(site.site)
app.command("doctor")(doctor.doctor)
app.command("relay")(relay.relay)
app.command("status")(inspect.status)
app.command("ledger")(ledger.ledger)
app.command("audit")(inspect.audit)
app.command("gc")(garbage.gc)
app.command("parse")(parse.parse)
app.command("plan")(placement.plan)
app.command("waits")(placement.waits)
app.command("collect")(batch.collect)
app.command("submit")(batch.submit)
app.command("export")(model.export)
app.command("generate")(model.generate)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Log errors only.")] = False,
) -> None:
    """Logs go to stderr, data to stdout."""
    level = logging.ERROR if quiet else logging.INFO
    logging.basicConfig(level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    for chatty in ("httpx", "httpcore", "matplotlib"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    if version:
        typer.echo(f"crosstrain {__version__}")
        raise typer.Exit


def main() -> None:
    """Entry point; see `crosstrain.errors` for the exit codes."""
    try:
        app()
    except CrosstrainError as error:
        report(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output went away, for example `| head`; that is its right.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def report(error: CrosstrainError) -> None:
    """Prints an error for people on stderr."""
    typer.echo(f"error: {error.message}", err=True)
    if error.hint:
        typer.echo(f"hint: {error.hint}", err=True)


if __name__ == "__main__":
    main()
