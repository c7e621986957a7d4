"""The tables of a run's database: made where there are none, refused where they are others."""

from __future__ import annotations

from sqlalchemy import Connection, inspect, select

from crosstrain.errors import IntegrityError, UsageError
from crosstrain.storage import schema


def prepare(connection: Connection, name: str, *, create: bool) -> None:
    """Makes the tables in an empty database; one that is not empty must be a run's of this version.

    Args:
        name: of the database, for messages.

    Raises:
        IntegrityError: it holds something else, or a run of another schema version. Nothing was made.
        UsageError: it is empty and nothing may be made.
    """
    inspector = inspect(connection)
    tables = inspector.get_table_names()
    if not tables and create:
        schema.metadata.create_all(connection)
        return
    if not tables:
        raise UsageError(f"There is no run in {name}.", "start `crosstrain coordinator` first")
    ours = schema.run.name in tables and any(
        column["name"] == schema.run.c.schema_version.name for column in inspector.get_columns(schema.run.name)
    )
    if not ours:
        raise IntegrityError(
            f"{name} is not a crosstrain database: it holds the tables {', '.join(sorted(tables)[:5])}.",
            "give the run a database of its own",
        )
    found = connection.execute(select(schema.run.c.schema_version)).scalar()
    if found not in (None, schema.SCHEMA_VERSION):
        raise IntegrityError(
            f"{name} has schema version {found}, this crosstrain needs {schema.SCHEMA_VERSION}.",
            "use the crosstrain version that began the run",
        )
