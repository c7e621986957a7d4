"""The directory that `flwr run` takes: a pyproject.toml and two modules that name ours. And which releases of flwr it is for."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from crosstrain import __version__
from crosstrain.domain import timeouts
from crosstrain.errors import EnvironmentFault, UsageError

OLDEST, NEWEST = (1, 33), (1, 42)
"""Releases of flwr that the tests run with; its interfaces change from one to the next."""

Seconds = Annotated[float, Field(ge=0, le=86400)]


class RunSettings(BaseModel):
    """What `flwr run --run-config` sets, in the names of this class with hyphens."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=lambda name: name.replace("_", "-"))

    coordinator: str = "http://127.0.0.1:8470"
    """Address of the coordinator as the ServerApp reaches it; several separated by commas."""
    weights: Literal["blob", "inline"] = "blob"
    """`blob`: sites move weights themselves, to and from `site.blobs`. `inline`: through Flower."""
    batch_mib: Annotated[int, Field(ge=1, le=1024)] = 64
    """Inline only: the most that one message carries; each process holds a few times of it."""
    linger_s: Seconds = timeouts.FLOWER_LINGER_S
    """How long a ClientApp waits for something to carry before it replies empty-handed."""
    connect_s: Seconds = timeouts.FLOWER_CONNECT_S
    """How long the coordinator is tried at the start."""
    stay_s: Seconds = timeouts.FLOWER_STAY_S
    """After the end of the training, how long without a message of a site until the run ends."""

    @classmethod
    def of(cls, run_config: Any) -> Self:
        """The settings of a run.

        Raises:
            UsageError: one is unknown or out of range.
        """
        try:
            return cls.model_validate(dict(run_config))
        except ValidationError as error:
            faults = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
            raise UsageError(
                f"The run's configuration is wrong: {faults}.", "see the keys in the app's pyproject.toml"
            ) from None


def installed_release() -> str | None:
    """The release of flwr that is installed here, None if there is none."""
    try:
        return metadata.version("flwr")
    except metadata.PackageNotFoundError:
        return None


def check_release(found: str | None) -> None:
    """Rejects a release of flwr that was not tried.

    Raises:
        EnvironmentFault: there is none, or it is older or newer than those that the tests run with.
    """
    first, last = (".".join(map(str, release)) for release in (OLDEST, NEWEST))
    numbers = re.match(r"(\d+)\.(\d+)", found or "")
    if not numbers or not OLDEST <= (int(numbers[1]), int(numbers[2])) <= NEWEST:
        raise EnvironmentFault(
            f"Expected flwr {first} to {last}, found {found or 'none'}.",
            "pip install 'crosstrain[flwr]' into an environment of its own",
        )


def write_app(directory: Path) -> None:
    """Makes the app.

    Raises:
        UsageError: the directory is there and not empty.
        EnvironmentFault: it cannot be written.
    """
    try:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise UsageError(f"{directory} is not empty.", "give a new directory, for example crosstrain-flower")
        package = directory / "crosstrain_flower"
        package.mkdir(parents=True)
        for name, text in _modules().items():
            (package / name).write_text(text, encoding="utf-8")
        (directory / "pyproject.toml").write_text(_project(), encoding="utf-8")
    except OSError as error:
        raise EnvironmentFault(f"{directory} cannot be written: {error.strerror}.", "choose another") from error


def _modules() -> dict[str, str]:
    """Two lines each: what they do is in the crosstrain that is installed beside flwr, not in a copy that travels."""
    return {
        "__init__.py": "",
        "server_app.py": "from crosstrain.flower.server_app import app\n\n__all__ = ['app']\n",
        "client_app.py": "from crosstrain.flower.client_app import app\n\n__all__ = ['app']\n",
    }


def _project() -> str:
    defaults = RunSettings().model_dump(by_alias=True)
    values = "\n".join(f"{key} = {_toml(value)}" for key, value in defaults.items())
    return f"""[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "crosstrain-flower"
version = "{__version__}"
description = "Carries crosstrain's messages through a Flower federation."
license = "Apache-2.0"
dependencies = ["crosstrain[flwr]=={__version__}"]

[tool.flwr.app]
publisher = "crosstrain"

[tool.flwr.app.components]
serverapp = "crosstrain_flower.server_app:app"
clientapp = "crosstrain_flower.client_app:app"

[tool.flwr.app.config]
{values}
"""


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
