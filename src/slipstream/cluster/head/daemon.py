"""The host daemon: it keeps a host in a run, starts agents for the head, and ends at the deadline.

`python -m slipstream.cluster.head.daemon FOLDER NAME` runs until the head says that the job is
over, until the deadline, or until no head has answered for a while. Then no process of the run is
left here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from slipstream.cluster.head.container import agent_argv
from slipstream.cluster.head.encryption import client_context
from slipstream.cluster.head.gpu_share import share_variables
from slipstream.cluster.head.placement import HEAD_SEEN, RunPlacement, read_placement
from slipstream.cluster.head.spot_notice import LOOK_SECONDS, SERVICES, find_notice
from slipstream.cluster.head.wire import (
    MAX_LINE,
    SILENCE_SECONDS,
    encode_line,
    pump,
    read_line,
    send_alive,
)
from slipstream.errors import ConfigError, PeerError
from slipstream.processor import num_gpus

RETRY_SECONDS = 1.0
CONNECT_SECONDS = 5.0
# After the deadline the head ends the ranks and writes the result; then the daemon does so.
DEADLINE_MARGIN_SECONDS = 15.0


class HostDaemon:
    """The host daemon of one run on this host.

    Args:
        folder: Folder of the run on this host.
        name: Name of this host within the run.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._agents: set[asyncio.Task[None]] = set()
        self._is_over = False
        self._taken_at: float | None = None

    async def run(self) -> int:
        """Serve the head until the run is over; return 0, or 1 if the head was lost for good."""
        placement = read_placement(self._folder)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._leave)
        deadline = placement.deadline_at
        limit = None if deadline is None else deadline + DEADLINE_MARGIN_SECONDS - time.time()
        try:
            await asyncio.wait_for(self._follow_head(), limit)
        except asyncio.TimeoutError:
            self._say("the deadline is over")
        except asyncio.CancelledError:
            self._say("a signal ends the host daemon")
        await self._end_agents()
        return 0 if self._is_over else 1

    def _leave(self) -> None:
        for task in asyncio.all_tasks():
            if task not in self._agents:
                task.cancel()

    async def _follow_head(self) -> None:
        """Connect to the head again and again; the placement may name another head meanwhile."""
        last_seen = time.monotonic()
        while not self._is_over:
            placement = read_placement(self._folder)
            if await self._try_to_serve(placement):
                last_seen = time.monotonic()
            if self._is_over:
                return
            if time.monotonic() - last_seen > placement.lost_seconds:
                self._say(f"no head has answered for {placement.lost_seconds:g} s")
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _try_to_serve(self, placement: RunPlacement) -> bool:
        """Serve the head on one connection until it ends; return whether there was one."""
        connected = await self._connect(placement)
        if connected is None:
            return False
        address, reader, writer = connected
        self._say(f"connected to the head at {address}:{placement.head_port}")
        writer.write(encode_line(host=self._name, slots=placement.processes or num_gpus() or 1))
        tasks = [asyncio.create_task(send_alive(writer))]
        if placement.cloud:
            tasks.append(asyncio.create_task(self._heed_notice(placement.cloud, writer)))
        try:
            await self._obey(placement, address, reader, writer)
        finally:
            for task in tasks:
                task.cancel()
            writer.close()
        if not self._is_over:
            self._say("the connection to the head is lost")
            await self._end_agents()
        return True

    async def _connect(
        self, placement: RunPlacement
    ) -> tuple[str, asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Return the first of the head's addresses that answers, and the connection; or None."""
        tls = client_context(placement)
        for address in placement.heads:
            opening = asyncio.open_connection(address, placement.head_port, ssl=tls, limit=MAX_LINE)
            try:
                return (address, *await asyncio.wait_for(opening, CONNECT_SECONDS))
            except (OSError, asyncio.TimeoutError):  # ssl.SSLError is an OSError
                continue
        return None

    async def _obey(
        self,
        placement: RunPlacement,
        address: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        while (message := await read_line(reader, SILENCE_SECONDS)) is not None:
            (self._folder / HEAD_SEEN).touch()
            if "agent" in message:
                run = self._run_agent(placement, address, message["agent"], writer)
                task = asyncio.create_task(run)
                self._agents.add(task)
                task.add_done_callback(self._agents.discard)
            elif "end" in message:
                self._is_over = True
                return

    async def _heed_notice(self, cloud: str, control: asyncio.StreamWriter) -> None:
        """Wait for the notice that the cloud takes this host away, and tell the head."""
        problem = ""
        while self._taken_at is None:
            try:
                self._taken_at = await asyncio.to_thread(find_notice, SERVICES[cloud])
            except PeerError as error:
                if not problem:
                    problem = str(error)
                    self._say(f"no notice of the cloud can be seen: {problem}")
            if self._taken_at is None:
                await asyncio.sleep(LOOK_SECONDS)
        self._say(f"the cloud takes this host away in {self._taken_at - time.time():.0f} s")
        control.write(encode_line(taken_at=self._taken_at))

    async def _run_agent(
        self,
        placement: RunPlacement,
        address: str,
        number: int,
        control: asyncio.StreamWriter,
    ) -> None:
        """Run one agent, and connect it to the head; tell the head if that cannot be done."""
        try:
            environ = {**os.environ, **share_variables(placement.gpu_memory_gib)}
            reader, writer = await asyncio.open_connection(
                address, placement.head_port, ssl=client_context(placement)
            )
            argv = agent_argv(placement.container, self._folder, environ, num_gpus=num_gpus())
            agent = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=environ,
                cwd="/",  # Python imports from this folder first, and a user's may hide our modules
                start_new_session=True,
            )
        except (OSError, ConfigError) as error:
            self._say(f"no agent can be started: {error}")
            control.write(encode_line(failed=number, reason=str(error)))
            return
        writer.write(encode_line(agent=number))
        await _connect_pipes(agent, reader, writer)

    async def _end_agents(self) -> None:
        for task in self._agents:
            task.cancel()
        if self._agents:
            await asyncio.wait(self._agents)

    def _say(self, text: str) -> None:
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {self._name}: {text}", flush=True)


async def _connect_pipes(
    agent: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Copy orders and reports until the agent ends; its ranks end when the connection does."""
    assert agent.stdin is not None
    assert agent.stdout is not None
    orders = asyncio.create_task(pump(reader, agent.stdin))
    reports = asyncio.create_task(pump(agent.stdout, writer))
    try:
        await agent.wait()
        await asyncio.wait([reports], timeout=SILENCE_SECONDS)
    finally:
        orders.cancel()
        reports.cancel()
        agent.stdin.close()  # an agent whose input ends, ends its ranks and itself
        await agent.wait()
        writer.close()


def main() -> None:
    """Run the host daemon of the folder and the name on the command line."""
    folder, name = Path(sys.argv[1]), sys.argv[2]
    os.chdir("/")
    code = 1
    with contextlib.suppress(KeyboardInterrupt):
        code = asyncio.run(HostDaemon(folder, name).run())
    sys.exit(code)


if __name__ == "__main__":
    main()
