"""The starter of replicas on hosts behind ssh."""

from __future__ import annotations

import asyncio
import collections
import logging
import os
import secrets
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.cluster.control.certificate import make_certificate
from slipstream.cluster.engines.ssh_host import SshHost
from slipstream.errors import PeerError, SlipstreamError
from slipstream.serve.gateway.generations import Generation
from slipstream.serve.gateway.replica import ReplicaOrder
from slipstream.serve.gateway.replica_server import CERTIFICATE_NAME
from slipstream.serve.gateway.starters import END_SECONDS, PROGRAM, ReplicaProcess, models_of
from slipstream.serve.gateway.upstream import ReplicaAddress

_LOG = logging.getLogger(__name__)
# A host that has lost a replica is the last choice for so long. Chosen by hand.
_BAD_SECONDS = 60.0
_CALL_SECONDS = 15.0  # time limit in seconds of a short call over ssh


@dataclass(slots=True)
class _Place:
    """A host and what the starter knows of it."""

    host: SshHost
    lock: asyncio.Lock
    folders: dict[str, str]  # of model files, by the digest of the generation
    bad_until: float = 0.0


class SshStarter:
    """A starter of replicas on hosts behind ssh.

    A replica listens on the address at which its host was reached. Its connections are encrypted
    with a certificate of this gateway, and it ends when the connection by ssh does.

    Args:
        hosts: Hosts, of which each replica gets the one with the fewest replicas.
        python: Path of Python on the hosts, which has Slipstream.
        options: Further fields of `ServeOptions` of each replica.
        has_grpc: Whether the replicas serve gRPC too (default False).
    """

    def __init__(
        self,
        hosts: Sequence[SshHost],
        python: str,
        options: Mapping[str, Any],
        *,
        has_grpc: bool = False,
    ) -> None:
        self._has_grpc = has_grpc
        self._places = {host.name: _Place(host, asyncio.Lock(), {}) for host in hosts}
        self._python, self._options = python, options
        self._id = secrets.token_hex(8)  # two gateways may share a host
        self._certificate, self._key = make_certificate(CERTIFICATE_NAME)
        self._processes: dict[str, ReplicaProcess] = {}
        self._placed: dict[str, str] = {}  # host of each replica that starts or runs

    async def start(self, name: str, generation: Generation) -> ReplicaAddress:
        """Start a replica; see `ReplicaStarter.start`."""
        place = self._choose()
        self._placed[name] = place.host.name
        try:
            return await self._start(name, generation, place)
        except PeerError:
            place.bad_until = time.monotonic() + _BAD_SECONDS
            raise
        except SlipstreamError as error:
            raise type(error)(f"{place.host.name}: {error}") from error

    async def _start(self, name: str, generation: Generation, place: _Place) -> ReplicaAddress:
        folder = await self._upload(generation, place)
        order = ReplicaOrder(
            models=[
                (model, version, f"{folder}/{os.path.basename(path)}", share)
                for model, version, path, share in models_of(generation)
            ],
            token=secrets.token_hex(),
            certificate=self._certificate,
            private_key=self._key,
            has_grpc=self._has_grpc,
            copies=folder,
            options=dict(self._options),
        )
        # The third word is the address at which this connection reached the host.
        script = f'set -- $SSH_CONNECTION; exec {shlex.quote(self._python)} -m {PROGRAM} "$3"'
        argv = [*place.host.argv, script]
        process = await ReplicaProcess.start(argv, order, name, place.host.name)
        self._processes[name] = process
        return await process.announced(order)

    def _choose(self) -> _Place:
        counts = collections.Counter(self._placed.values())
        now = time.monotonic()
        return min(
            self._places.values(),
            key=lambda each: (max(each.bad_until - now, 0.0), counts[each.host.name]),
        )

    async def _upload(self, generation: Generation, place: _Place) -> str:
        """Copy a generation to a host, unless that was done; return the folder there."""
        async with place.lock:
            if generation.digest not in place.folders:
                folder = f".slipstream/serve/{self._id}-{generation.digest}"
                old = shlex.join(place.folders.values())  # a replica has read its file at its start
                script = f"umask 077; rm -rf {old}; mkdir -p {folder}; cd {folder}; pwd -P"
                said = await asyncio.to_thread(
                    place.host.run, script, what="making a folder", seconds=_CALL_SECONDS
                )
                place.folders.clear()
                path = said.splitlines()[-1]
                await asyncio.to_thread(place.host.upload, generation.folder, path)
                place.folders[generation.digest] = path
            return place.folders[generation.digest]

    async def stop(self, name: str, seconds: float) -> None:
        """End a replica; see `ReplicaStarter.stop`."""
        self._placed.pop(name, None)
        if process := self._processes.pop(name, None):
            await process.stop(seconds)

    async def lose(self, name: str) -> None:
        """End a replica that has failed, and avoid its host for a while."""
        if host := self._placed.get(name):
            place = self._places[host]
            place.bad_until = time.monotonic() + _BAD_SECONDS
            place.folders.clear()  # a replica that is cut off removes them
        await self.stop(name, 0.0)

    def list(self) -> Mapping[str, str]:
        """Return the host of each replica whose connection stands."""
        return {name: each.host for name, each in self._processes.items() if each.is_running}

    async def close(self) -> None:
        """End all replicas, and remove the model files from the hosts."""
        await asyncio.gather(*(self.stop(name, END_SECONDS) for name in tuple(self._processes)))
        await asyncio.gather(*(self._clean(place) for place in self._places.values()))

    async def _clean(self, place: _Place) -> None:
        if place.folders and place.bad_until <= time.monotonic():
            script = f"rm -rf {shlex.join(place.folders.values())}"
            try:
                await asyncio.to_thread(
                    place.host.run, script, what="removing models", seconds=_CALL_SECONDS
                )
            except SlipstreamError as error:
                _LOG.warning("%s keeps copies of the models: %s", place.host.name, error)
