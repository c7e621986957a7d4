"""One whole exchange of weights in plain Flower, inline as it is usually done: `python benchmarks/flower_exchange.py --mib 64 --json`.

The ServerApp sends the model to every site, each ClientApp answers with an array record of the same size, and the clock runs
from the first send until the last reply is unpacked. Needs the environment that `make flower-venvs` makes.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from flower_federation import ENVIRONMENTS, Federation, federation, write_app
from processes import TICKS

PATIENCE_S = 900.0
"""Six times what 1.3 GiB took: where memory is short one of Flower's processes is killed, and the others wait for ever."""
LOOK_S = 0.05

SERVER_APP = """
import json, time
from pathlib import Path
import numpy as np
from flwr.app import ArrayRecord, Array, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


def model(mib, tensors):
    total = mib << 20
    sizes = [2048] * (tensors // 3)
    rest, large = total - sum(sizes), tensors - len(sizes)
    sizes += [rest // large] * (large - 1)
    sizes.append(total - sum(sizes))
    data = np.random.default_rng(1)
    return {
        f"tensor-{n:03d}": Array("uint8", (size,), "crosstrain.bytes", data.bytes(size)) for n, size in enumerate(sizes)
    }


@app.main()
def main(grid: Grid, context):
    config = context.run_config
    while len(nodes := list(grid.get_node_ids())) < config["sites"]:
        time.sleep(0.2)
    for round_number in range(config["rounds"]):
        arrays = model(config["mib"], config["tensors"])
        Path(config["out"]).with_suffix(".begun").touch()
        begun = time.perf_counter()
        record = ArrayRecord(arrays)
        content = RecordDict({"model": record})
        waiting = set(grid.push_messages([Message(content, node, "query.exchange") for node in nodes]))
        pushed = time.perf_counter()
        got = 0
        while waiting:
            for reply in grid.pull_messages(waiting):
                waiting.discard(reply.metadata.reply_to_message_id)
                if reply.has_error():
                    raise RuntimeError(str(reply.error))
                got += sum(len(bytes(array.data)) for array in reply.content["model"].values())
            if waiting:
                time.sleep(0.2)
        wall = time.perf_counter() - begun
        assert got == len(nodes) * (config["mib"] << 20), got
        line = json.dumps({"wall_s": wall, "push_s": pushed - begun, "bytes_back": got})
        with open(config["out"], "a") as file:
            file.write(line + "\\n")
"""

CLIENT_APP = """
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query("exchange")
def exchange(message, context):
    # Other bytes than those that came, as a site's change of the weights would be.
    arrays = {
        name: Array(array.dtype, array.shape, array.stype, bytes(array.data)[::-1])
        for name, array in message.content["model"].items()
    }
    return Message(RecordDict({"model": ArrayRecord(arrays)}), reply_to=message)
"""

ROLES = ("superlink", "serverapp", "supernode", "clientapp", "superexec")


class Census:
    """Processor time and largest resident set of every process of a federation, by role, looked at while it runs."""

    def __init__(self, running: Federation) -> None:
        self._running = running
        self._seen: dict[tuple[str, str], tuple[str, float, float]] = {}
        self._first: dict[tuple[str, str], float] = {}

    def look(self) -> None:
        for place in (Path("/proc", str(pid)) for pid in self._running.members()):
            try:
                fields = (place / "stat").read_text().rpartition(") ")[2].split()
                words = (place / "cmdline").read_text().split("\0")
                peak = next(line for line in (place / "status").read_text().splitlines() if line.startswith("VmHWM:"))
            except (OSError, StopIteration):
                continue
            role = next((role for role in ROLES for word in words[:3] if role in Path(word).name), "")
            if role:
                key = (place.name, fields[19])
                cpu_s = sum(map(int, fields[11:13])) / TICKS
                self._first.setdefault(key, cpu_s)
                self._seen[key] = (role, cpu_s, int(peak.split()[1]) / 1024)

    def begin(self) -> None:
        """What was used before does not count."""
        self._seen.clear()
        self._first.clear()
        self.look()

    def result(self) -> dict[str, dict[str, float]]:
        """Of each role: how many processes, their processor time in all, and the largest resident set of one."""
        found: dict[str, dict[str, float]] = {}
        for key, (role, cpu_s, peak) in self._seen.items():
            entry = found.setdefault(role, {"processes": 0, "cpu_s": 0.0, "peak_mib": 0.0})
            entry["processes"] += 1
            entry["cpu_s"] = round(entry["cpu_s"] + cpu_s - (0.0 if self._young(key) else self._first[key]), 2)
            entry["peak_mib"] = round(max(entry["peak_mib"], peak), 1)
        return found

    def _young(self, key: tuple[str, str]) -> bool:
        return self._first[key] < 0.2


def measure(venv: Path, mib: int, sites: int, tensors: int) -> dict[str, Any]:
    """One exchange in a federation of its own."""
    with tempfile.TemporaryDirectory(prefix="flower-exchange-") as name:
        directory = Path(name)
        defaults = f'mib = {mib}\nsites = {sites}\ntensors = {tensors}\nrounds = 1\nout = ""'
        modules = {"server_app": SERVER_APP, "client_app": CLIENT_APP}
        app = write_app(directory / "exchange-app", "exchange_app", modules, defaults)
        out = directory / "result.jsonl"
        with federation(venv, directory / "federation") as running:
            for number in range(sites):
                running.start_supernode(f"supernode-{number}")
            running.run(app, f'out="{out}"')
            census = Census(running)
            _until(out.with_suffix(".begun"), census, running)
            census.begin()
            _until(out, census, running)
            result: dict[str, Any] = json.loads(out.read_text().splitlines()[0])
        return {"mib": mib, "sites": sites, "tensors": tensors, **result, "processes": census.result()}


def _until(path: Path, census: Census, running: Federation) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not path.exists():
        census.look()
        if time.monotonic() > deadline or any(process.poll() is not None for process in running.processes.values()):
            raise SystemExit(f"{path.name} did not come:\n" + running.log("superlink")[-4000:])
        time.sleep(LOOK_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=64, help="bytes of the model, each way and site")
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--tensors", type=int, default=310, help="arrays that the model is cut into; 1 is flat")
    parser.add_argument("--flat", action="store_true", help="measure one flat array too")
    parser.add_argument("--release", choices=tuple(ENVIRONMENTS), default="newest")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    # So that the federation's processes end with this one, whoever ends it.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    venv = ENVIRONMENTS[given.release]
    if not (venv / "bin" / "flower-superlink").exists():
        sys.exit(f"There is no flwr in {venv}; make it with: make flower-venvs")
    forms = {f"tensors_{given.tensors}": given.tensors} | ({"flat": 1} if given.flat else {})
    results = {form: measure(venv, given.mib, given.sites, tensors) for form, tensors in forms.items()}
    if given.json:
        print(json.dumps(results))
        return
    for form, found in results.items():
        print(f"{form}: {found['wall_s']:.1f} s for {given.mib} MiB to {given.sites} sites and back")
        for role, used in found["processes"].items():
            print(
                f"  {role:10} {used['processes']:.0f} processes {used['cpu_s']:7.1f} CPU s {used['peak_mib']:8.0f} MiB"
            )


if __name__ == "__main__":
    main()
