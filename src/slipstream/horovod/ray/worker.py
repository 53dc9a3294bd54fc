"""Rank of a job that runs as an actor of Ray."""

# Ray declares hardly any types for its functions.
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from slipstream.horovod.ray import ray_logger


class WorkerAddress(NamedTuple):
    """Network address of a worker.

    Args:
        node: Identifier of the node in Ray.
        host: IP address of the node.
        port: Port that is free on the node.
    """

    node: str
    host: str
    port: int


class Worker:
    """Class of the actors; `RayExecutor` calls the methods."""

    def __init__(self) -> None:
        self._executable: Any = None

    def address(self) -> WorkerAddress:
        """Return the address of this worker, with a port that is free at this time."""
        import ray  # here, because executor.py reports the error if Ray is not installed
        from ray.util import get_node_ip_address

        node = ray.get_runtime_context().get_node_id()
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            listener.bind(("", 0))
            return WorkerAddress(node, get_node_ip_address(), listener.getsockname()[1])

    def set_environment(self, environ: Mapping[str, str]) -> None:
        """Set environment variables of this rank; called before any function of the user runs."""
        os.environ.update({name: str(value) for name, value in environ.items()})

    def make_executable(
        self, kind: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Create the executable, an object that is the argument of the functions to execute."""
        self._executable = kind(*args, **kwargs)

    def set_queue(self, queue: Any) -> None:
        """Set the Ray queue for the values of ray_logger.log(); None discards the values."""
        ray_logger.configure(queue)

    def execute(self, function: Callable[[Any], Any]) -> Any:
        """Call a function with the executable as its argument, and return the result."""
        return function(self._executable)
