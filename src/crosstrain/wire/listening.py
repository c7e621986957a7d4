"""A port to serve on."""

from __future__ import annotations

import socket

from crosstrain.errors import EnvironmentFault


def listen(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        EnvironmentFault: the port is in use, or the address is not this machine's.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(1024)
        except OSError:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:  # UnicodeError: a host that is no name
        reason = error.strerror or error if isinstance(error, OSError) else error
        raise EnvironmentFault(
            f"Cannot listen on {host}:{port}: {reason}.",
            "another coordinator may be running; choose another port with --port",
        ) from error
    return listener
