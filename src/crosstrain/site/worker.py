"""The trainer's process: `python -m crosstrain.site.worker SETTINGS.json`, once per rank (torchrun for more than one).

Rank 0 does the commands that come over the Unix socket named in CROSSTRAIN_TRAINER_SOCKET, and passes them on to the other
ranks. The socket is also its lifeline: when the agent is gone, however it went, rank 0 ends at once, torchrun then ends the
other ranks, and ranks that torchrun does not reach miss the store that rank 0 held.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any, Protocol

from crosstrain.domain.phase import PhaseProgress
from crosstrain.errors import UsageError
from crosstrain.site.commands import ANSWERED, error_to_json, perform, progress_to_json, ready_to_json
from crosstrain.site.counting import CountingTrainer
from crosstrain.site.settings import TrainerSettings
from crosstrain.site.trainer import Command, Trainer

SOCKET_VARIABLE = "CROSSTRAIN_TRAINER_SOCKET"
_AGENT_GONE = 1


class Announcer(Protocol):
    """Rank 0's way to the other ranks, and theirs to it."""

    def announce(self, command: str) -> None: ...
    def next(self) -> str: ...
    def close(self) -> None: ...


class _Alone:
    """The announcer of a site with one rank."""

    def announce(self, command: str) -> None:
        pass

    def next(self) -> str:
        raise AssertionError("a site with one rank has nobody to hear from")

    def close(self) -> None:
        pass


class AgentSocket:
    """Rank 0's end of the socket: commands in, answers out. A thread reads, so that a stop or the agent's end is noticed
    during a long call."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._stopped = -1
        self._closing = False
        threading.Thread(target=self._read, name="agent-socket", daemon=True).start()

    def next(self) -> Command:
        """Waits for the next command; "stop" is none."""
        return self._commands.get()

    def stop_requested(self, number: int) -> bool:
        """Whether the run with this number was asked to stop."""
        return self._stopped == number

    def send(self, kind: str, content: dict[str, Any]) -> None:
        self._socket.sendall(json.dumps({kind: content}).encode() + b"\n")

    def send_if_read(self, kind: str, content: dict[str, Any]) -> None:
        """Sends unless the agent is so far behind with reading that sending would wait for it."""
        if select.select([], [self._socket], [], 0)[1]:
            self.send(kind, content)

    def expect_close(self) -> None:
        """From now on the agent's end of the socket closing is no reason to end this process."""
        self._closing = True

    def _read(self) -> None:
        try:
            with self._socket.makefile("rb") as lines:
                for line in lines:
                    command = json.loads(line)
                    if command["op"] == "stop":
                        self._stopped = command["number"]
                    else:
                        self._commands.put(command)
        finally:
            if not self._closing:
                # Not sys.exit: the main thread may be in a native call for minutes.
                os._exit(_AGENT_GONE)


def main(argv: list[str]) -> None:
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    _leave_signals_to_the_agent(world)
    # Connected before torch is imported, so that an agent that ends meanwhile is noticed.
    agent = AgentSocket(os.environ[SOCKET_VARIABLE]) if rank == 0 else None
    settings = TrainerSettings.from_json(Path(argv[1]).read_text(encoding="utf-8"))
    trainer, announcer = _build(settings, world)
    if agent:
        _serve(trainer, agent, announcer)
    else:
        _follow(trainer, announcer)
    announcer.close()


def _leave_signals_to_the_agent(world: int) -> None:
    """A scheduler sends its warnings to all processes of a job; the agent answers them, by draining its trainer first.

    SIGTERM is torchrun's way to end its ranks, where it is used.
    """
    ignored = [signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2]
    for signum in ignored if world > 1 else [*ignored, signal.SIGTERM]:
        signal.signal(signum, signal.SIG_IGN)


def _build(settings: TrainerSettings, world: int) -> tuple[Trainer, Announcer]:
    if settings.engine == "counting":
        if world > 1:
            raise UsageError(f"The counting trainer has one rank, found {world}.", "set site.ranks = 1")
        return CountingTrainer(settings.seq_len, settings.window_log, settings.inner.rehearsal_step_s), _Alone()
    from crosstrain.site.titan.ranks import CommandChannel
    from crosstrain.site.titan.trainer import TitanTrainer

    return TitanTrainer(settings), CommandChannel()


def _serve(trainer: Trainer, agent: AgentSocket, announcer: Announcer) -> None:
    agent.send("ready", ready_to_json(trainer))
    while True:
        command = agent.next()

        def watch(progress: PhaseProgress, number: int = command["number"]) -> bool:
            agent.send_if_read("progress", progress_to_json(progress))
            return agent.stop_requested(number)

        announcer.announce(json.dumps(command))
        if command["op"] == "close":
            agent.expect_close()
        try:
            agent.send("done", perform(trainer, command, watch, writes=True))
        except ANSWERED as error:
            agent.send("error", error_to_json(error))
        if command["op"] == "close":
            return


def _follow(trainer: Trainer, announcer: Announcer) -> None:
    while True:
        try:
            command = json.loads(announcer.next())
        except RuntimeError as error:
            # One line: how rank 0 ended is in the log above, and worth more.
            sys.exit(f"rank {os.environ.get('RANK')}: rank 0 is gone: {error}")
        # Rank 0 raised it too, and answers.
        with contextlib.suppress(*ANSWERED):
            perform(trainer, command, lambda _: False, writes=False)
        if command["op"] == "close":
            return


if __name__ == "__main__":
    main(sys.argv)
