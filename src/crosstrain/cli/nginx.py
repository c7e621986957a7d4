"""`crosstrain nginx`: the configuration of a TLS front."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def nginx(
    run: Annotated[Path, typer.Argument(metavar="RUN.toml", help="The run file, on the coordinator's machine.")],
    name: Annotated[str, typer.Option("--server-name", help="The host that sites ask for.")],
    certificate: Annotated[Path, typer.Option(help="PEM file of the certificate and its chain.")],
    key: Annotated[Path, typer.Option(help="PEM file of its key.")],
    listen: Annotated[str, typer.Option(help="Port, or address and port, to listen on.")] = "443",
    passwords: Annotated[
        Path | None,
        typer.Option(help="File of users and passwords, made by htpasswd; without it everybody may come in."),
    ] = None,
) -> None:
    """Print the configuration of an nginx in front of the coordinator: TLS, and blobs straight from the disk."""
    from crosstrain.assembly import OBJECTS, open_run
    from crosstrain.coordinator.nginx import Front, nginx_configuration

    files = open_run(run)
    section = files.config.coordinator
    host = "127.0.0.1" if section.host in ("0.0.0.0", "::") else section.host
    front = Front(
        run=files.config.run.name,
        listen=listen,
        name=name,
        certificate=certificate.absolute(),
        key=key.absolute(),
        backend=f"[{host}]:{section.port}" if ":" in host else f"{host}:{section.port}",
        objects=files.coordinator_dir / OBJECTS,
        passwords=passwords and passwords.absolute(),
    )
    typer.echo(nginx_configuration(front), nl=False)
