"""One rank of a job, as an actor of Ray."""

# Ray's functions have hardly any types.
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from slipstream.horovod.ray import ray_logger


class Place(NamedTuple):
    """Location of a worker.

    Args:
        node: Identifier of Ray's node.
        address: Address of the node, for its peers.
        port: Free port of the node.
    """

    node: str
    address: str
    port: int


class Worker:
    """Becomes an actor; its methods are called by the executor."""

    def __init__(self) -> None:
        self._executable: Any = None

    def place(self, node: str, address: str) -> Place:
        """Return the location of this worker.

        Args:
            node, address: as Ray's runtime context says; "" to ask it.
        """
        if not node:
            import ray  # only there on a cluster
            from ray.util import get_node_ip_address

            node, address = ray.get_runtime_context().get_node_id(), get_node_ip_address()
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as free:
            free.bind(("", 0))
            return Place(node, address, free.getsockname()[1])

    def set_environment(self, environ: Mapping[str, str]) -> None:
        """Set the environment variables of this rank, before anything reads them."""
        os.environ.update({name: str(value) for name, value in environ.items()})

    def make_executable(
        self, kind: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Make the object that functions are called with."""
        self._executable = kind(*args, **kwargs)

    def set_queue(self, queue: Any) -> None:
        """Let ray_logger.log() put values into a queue of Ray; None discards them."""
        ray_logger.configure(queue)

    def execute(self, function: Callable[[Any], Any]) -> Any:
        """Call a function with the executable, and return what it returns."""
        return function(self._executable)
