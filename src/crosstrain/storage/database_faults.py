"""What a database's machine, or the way to it, refuses: an error for people."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, InternalError, OperationalError

from crosstrain.errors import EnvironmentFault


@contextmanager
def disposed_on_error(engine: Engine) -> Iterator[None]:
    try:
        yield
    except BaseException:
        engine.dispose()
        raise


_HINTS = {
    "sqlite": "free disk space or restore the permissions of `coordinator.dir`; nothing was lost",
    "postgresql": "see that the server of `coordinator.database` runs and can be reached; nothing was lost",
}


@contextmanager
def storage_faults(engine: Engine) -> Iterator[None]:
    """Turns what the database's machine or the way to it refuses into an error for people; our own bugs pass unchanged.

    Raises:
        EnvironmentFault: disk full, read-only, a lock not given in time, connection lost.
    """
    try:
        yield
    except DBAPIError as error:
        if not is_fault(error):
            raise
        raise EnvironmentFault(
            f"The database cannot be used: {one_line(error)}.", _HINTS[engine.dialect.name]
        ) from error


def is_fault(error: Exception) -> bool:
    """Whether the database's machine or the way to it refused, which ends the transaction whatever it was doing."""
    return isinstance(error, DBAPIError) and (
        error.connection_invalidated or isinstance(error, OperationalError | InternalError)
    )


def one_line(error: DBAPIError) -> str:
    """What the driver said."""
    return " ".join(str(error.orig).split()).rstrip(".")
