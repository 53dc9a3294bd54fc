"""Replicas as servers in this process: started, lost, drained and replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("starlette")

from slipstream.errors import UsageError
from slipstream.serve.gateway.dispatcher import Dispatcher, DispatchLimits
from slipstream.serve.gateway.fleet import Fleet, FleetLimits
from slipstream.serve.gateway.generations import Generation
from slipstream.serve.gateway.replica_server import ReplicaState
from slipstream.serve.gateway.upstream import ReplicaAddress

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
READY = ReplicaState.READY


def generation(number: int) -> Generation:
    return Generation(number, Path("/nowhere"), (), str(number))


class ServersHere:
    """A starter whose replicas are servers in this process that are always ready."""

    def __init__(self) -> None:
        self.servers: dict[str, asyncio.Server] = {}
        self.writers: dict[str, list[asyncio.StreamWriter]] = {}
        self.generation_of: dict[str, int] = {}
        self.ends: list[tuple[str, str]] = []
        self.bad_generations: set[int] = set()
        self.failures = 0  # starts that are to fail

    async def start(self, name: str, generation: Generation) -> ReplicaAddress:
        await asyncio.sleep(0)
        if self.failures or generation.number in self.bad_generations:
            self.failures = max(self.failures - 1, 0)
            raise UsageError("the file is no package")
        writers = self.writers[name] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while await reader.readuntil(b"\r\n\r\n"):
                    writer.write(OK)
            writer.close()

        self.servers[name] = await asyncio.start_server(serve, "127.0.0.1", 0)
        self.generation_of[name] = generation.number
        host, port = self.servers[name].sockets[0].getsockname()
        return ReplicaAddress(host, port, "token")

    def kill(self, name: str) -> None:
        """End a replica as SIGKILL does."""
        self.servers.pop(name).close()
        for writer in self.writers.pop(name):
            writer.transport.abort()

    async def stop(self, name: str, seconds: float) -> None:
        self.ends.append(("stop", name))
        if name in self.servers:
            self.kill(name)

    async def lose(self, name: str) -> None:
        self.ends.append(("lose", name))
        if name in self.servers:
            self.kill(name)

    def list(self) -> Mapping[str, str]:
        return dict.fromkeys(self.servers, "")

    async def close(self) -> None:
        for name in tuple(self.servers):
            self.kill(name)


class Scene:
    """A fleet that runs."""

    def __init__(self) -> None:
        self.starter = ServersHere()
        self.said: list[str] = []
        self.dispatcher = Dispatcher(DispatchLimits(), lambda: ("", 1.0))
        limits = FleetLimits(start_seconds=30.0, drain_seconds=30.0)
        self.fleet = Fleet(self.starter, self.dispatcher, generation(1), limits, self.said.append)

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds."""
        while not condition():
            await asyncio.sleep(0.001)

    async def ready(self, count: int) -> None:
        """Wait until so many replicas are wanted and ready, and no others are left."""
        self.fleet.target = count
        self.fleet.change()
        await self.until(lambda: self.fleet.count(READY) == count == len(self.fleet.replicas))


def run(test: Callable[[Scene], Awaitable[None]]) -> None:
    """Run a test with a fleet; fail if it hangs."""

    async def main() -> None:
        scene = Scene()
        task = asyncio.create_task(scene.fleet.run())
        try:
            await asyncio.wait_for(test(scene), 60)
        finally:
            await scene.fleet.close()
            await task
        assert not scene.fleet.replicas
        assert not scene.starter.servers

    asyncio.run(main())


def test_there_are_as_many_replicas_as_the_target_says() -> None:
    async def test(scene: Scene) -> None:
        for count in (1, 3, 2, 0, 2):
            await scene.ready(count)
        assert {how for how, _ in scene.starter.ends} == {"stop"}

    run(test)


def test_a_replica_that_is_lost_is_replaced_and_its_place_avoided() -> None:
    async def test(scene: Scene) -> None:
        await scene.ready(2)
        victim = scene.fleet.replicas[0]
        scene.starter.kill(victim.name)
        victim.suspect()  # as a request does that is lost
        await scene.until(lambda: victim not in scene.fleet.replicas)
        await scene.ready(2)
        assert ("lose", victim.name) in scene.starter.ends
        assert any(line.startswith(f"{victim.name} is lost: ") for line in scene.said)

    run(test)


def test_a_replica_that_is_suspected_in_vain_goes_on() -> None:
    async def test(scene: Scene) -> None:
        await scene.ready(1)
        (replica,) = scene.fleet.replicas
        replica.suspect()
        assert replica.state is ReplicaState.SUSPECT
        await scene.ready(1)
        assert scene.fleet.replicas == [replica]

    run(test)


def test_a_start_that_fails_is_told_and_repeated() -> None:
    async def test(scene: Scene) -> None:
        scene.starter.failures = 1
        scene.fleet.target = 1
        await scene.until(lambda: scene.fleet.failures == 1)
        assert scene.fleet.problem == "the file is no package"
        await scene.ready(1)
        assert (scene.fleet.problem, scene.fleet.failures) == ("", 0)

    run(test)


def test_a_replica_ends_when_its_open_requests_are_answered() -> None:
    async def test(scene: Scene) -> None:
        await scene.ready(1)
        (replica,) = scene.fleet.replicas
        replica.open = 1
        scene.fleet.target = 0
        await scene.until(lambda: replica.state is ReplicaState.DRAINING)
        await asyncio.sleep(0.3)
        assert replica.name in scene.starter.servers
        replica.open = 0
        await scene.ready(0)
        assert scene.starter.ends == [("stop", replica.name)]

    run(test)


def test_an_update_replaces_one_after_the_other() -> None:
    async def test(scene: Scene) -> None:
        await scene.ready(3)
        scene.fleet.update(generation(2))
        counts: set[tuple[int, int]] = set()

        def is_done() -> bool:
            active = scene.fleet.count(READY, ReplicaState.STARTING, ReplicaState.SUSPECT)
            counts.add((scene.fleet.count(READY), active))
            numbers = {each.generation for each in scene.fleet.replicas}
            return numbers == {2} and len(scene.fleet.replicas) == 3

        await scene.until(is_done)
        assert min(ready for ready, _ in counts) >= 3
        assert max(active for _, active in counts) <= 4
        assert scene.fleet.generations() == {2}
        await scene.ready(3)

    run(test)


@pytest.mark.parametrize("target", [0, 2])
def test_files_that_cannot_be_served_leave_the_old_ones(target: int) -> None:
    async def test(scene: Scene) -> None:
        await scene.ready(2)
        await scene.ready(target)
        before = list(scene.fleet.replicas)
        scene.starter.bad_generations.add(2)
        scene.fleet.update(generation(2))
        if target == 0:  # only a start can tell
            scene.fleet.target = 1
            scene.fleet.change()
        await scene.until(lambda: scene.fleet.generation.number == 1)
        assert any("generation 2 cannot be served" in line for line in scene.said)
        await scene.ready(max(target, 1))
        assert [each for each in scene.fleet.replicas if each in before] == before
        assert set(scene.starter.generation_of.values()) == {1}

    run(test)
