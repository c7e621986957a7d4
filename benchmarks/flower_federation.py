"""A Flower federation on loopback: one SuperLink, SuperNodes, and runs of an app; of the gRPC releases and of the HTTP ones.

Needs nothing but the standard library here; flwr is in an environment of its own (`make flower-venvs`).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = {"published": ROOT / ".venv-flwr-1.33", "newest": ROOT / ".venv-flwr-new"}
"""Flower 1.33 speaks gRPC, as the published system did; the newest release speaks HTTP."""
START_S = 60.0
LEAVE_S = 10.0


@dataclass
class Federation:
    """Processes of a federation; `federation()` makes one and ends it.

    Attributes:
        venv: the environment with flwr.
        directory: logs, keys and what Flower keeps.
    """

    venv: Path
    directory: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    fleet_port: int = 0
    control_port: int = 0

    @property
    def speaks_http(self) -> bool:
        return not self._version.startswith("1.33")

    @property
    def _version(self) -> str:
        return next(self.venv.glob("lib/python*/site-packages/flwr-*.dist-info")).name.split("-")[1]

    def environment(self) -> dict[str, str]:
        """No telemetry, no look for updates, nothing in the home directory, no proxy between processes of one machine."""
        return {
            **{key: value for key, value in os.environ.items() if "proxy" not in key.lower()},
            "PATH": f"{self.venv / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(self.directory / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "NO_PROXY": "127.0.0.1,localhost",
        }

    def start_superlink(self) -> None:
        ports = [free_port() for _ in range(3)]
        words = ["flower-superlink", "--insecure", "--disable-runtime-dependency-installation"]
        if self.speaks_http:
            self.fleet_port = self.control_port = ports[0]
            words += ["--host", "127.0.0.1", "--port", str(ports[0])]
        else:
            apis = ("serverappio", "fleet", "control")
            for api, port in zip(apis, ports, strict=True):
                words += [f"--{api}-api-address", f"127.0.0.1:{port}"]
            _, self.fleet_port, self.control_port = ports
        self._start("superlink", words)
        self._await_port(self.control_port, "superlink")
        self._await_port(self.fleet_port, "superlink")

    def start_supernode(self, name: str, config: str = "") -> None:
        """Starts or restarts a SuperNode; `config` is its `--node-config`."""
        words = ["flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{self.fleet_port}"]
        port = str(free_port())
        if self.speaks_http:
            words += ["--host", "127.0.0.1", "--port", port]
        else:
            words += ["--clientappio-api-address", f"127.0.0.1:{port}"]
        self._start(name, words + (["--node-config", config] if config else []))

    def flwr(self, *words: str) -> str:
        """What a command of the `flwr` tool prints."""
        done = subprocess.run(
            [str(self.venv / "bin" / "flwr"), *words],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"flwr {words[0]} failed: {done.stdout}\n{done.stderr}")
        return done.stdout

    def run_log(self) -> str:
        """What the newest run's ServerApp said."""
        runs = json.loads(self.flwr("list", "here", "--format", "json"))["runs"]
        return f"{runs[0]}\n" + self.flwr("log", str(runs[0]["run-id"]), "here", "--show")

    def run(self, app: Path, config: str) -> None:
        """Starts a run of an app; returns when the SuperLink has taken it."""
        home = self.directory / "flwr"
        home.mkdir(exist_ok=True)
        connection = f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{self.control_port}"\n'
        (home / "config.toml").write_text(connection + "insecure = true\n")
        self.flwr("run", str(app), "here", "--run-config", config)

    def kill(self, name: str) -> None:
        """SIGKILL to a process and all that it started."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def members(self) -> list[int]:
        """All processes of the federation: some leave the group that they were started in, their environment stays."""
        mark = f"FLWR_HOME={self.directory / 'flwr'}\0".encode()
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (place / "environ").read_bytes():
                    found.append(int(place.name))
        return found

    def close(self) -> None:
        """Ends everything, SuperNodes first."""
        for process in reversed(self.processes.values()):
            os.killpg(process.pid, signal.SIGTERM)
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(LEAVE_S)
        for pid in self.members():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self.processes.values():
            process.wait()
        self.processes.clear()

    def _start(self, name: str, words: list[str]) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(self.venv / "bin" / words[0]), *words[1:]],
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _await_port(self, port: int, name: str) -> None:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.processes[name].poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.1)
        raise RuntimeError(f"{name} does not listen on {port}:\n{self.log(name)}")


@contextmanager
def federation(venv: Path, directory: Path) -> Iterator[Federation]:
    """A federation whose SuperLink runs; leaving the block ends all its processes."""
    directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        made = Federation(venv, directory)
        stack.callback(made.close)
        made.start_superlink()
        yield made


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_app(directory: Path, name: str, modules: Mapping[str, str], defaults: str) -> Path:
    """A Flower app whose modules `server_app` and `client_app` each define `app`."""
    package = directory / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    for module, source in modules.items():
        (package / f"{module}.py").write_text(source)
    (directory / "pyproject.toml").write_text(
        f"""[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name.replace("_", "-")}"
version = "1.0.0"
description = "{name}"
license = "Apache-2.0"
dependencies = ["flwr>=1.33"]

[tool.flwr.app]
publisher = "crosstrain"

[tool.flwr.app.components]
serverapp = "{name}.server_app:app"
clientapp = "{name}.client_app:app"

[tool.flwr.app.config]
{defaults}
"""
    )
    return directory
