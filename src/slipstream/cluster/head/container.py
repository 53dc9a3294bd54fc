"""The container of a job's ranks on one host: the agent runs in it, and starts the ranks there.

The container shares the network, the shared memory and the GPUs of the host, and the folder of the
run. It ends when the agent ends, and the agent ends when its standard input does.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipstream.cluster.launch.connection import AGENT
from slipstream.errors import ConfigError
from slipstream.settings import gpu_share_environment

RUNTIMES = ("podman", "docker")


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerImage:
    """The image in which the ranks run.

    Args:
        image: Name of the image.
        runtime: "podman", "docker", or "" for the first that the host has.
        python: Python in the image, where Slipstream is installed.
        options: Further options for the runtime's `run`.
        volumes: Absolute paths of storage that the host has mounted.
    """

    image: str
    runtime: str
    python: str
    options: tuple[str, ...]
    volumes: tuple[str, ...]


def agent_argv(
    container: ContainerImage | None, folder: Path, environ: Mapping[str, str], *, num_gpus: int
) -> tuple[str, ...]:
    """Return the command that starts an agent, in the container of the job if it has one.

    Args:
        container: Image of the job, or None for the host itself.
        folder: Folder of the run on this host.
        environ: Environment of the agent.
        num_gpus: Number of GPUs of the host.

    Raises:
        ConfigError: the host has no runtime for containers, or Docker would not see storage.
    """
    if container is None:
        return (sys.executable, *AGENT)
    runtime = container.runtime or find_runtime()
    if runtime == "docker" and container.volumes:
        raise ConfigError(
            "storage that is mounted for a run is not seen by Docker's daemon; set"
            " container.runtime to podman, or mount the storage on the host and name it with"
            " container.options"
        )
    return (
        *(runtime, "run", "--rm", "--interactive", "--network=host", "--ipc=host"),
        *_user_options(runtime, os.getuid(), os.getgid()),
        *_gpu_options(runtime, num_gpus),
        *(f"--volume={path}:{path}" for path in (str(folder), *container.volumes)),
        *(f"--env={name}" for name in _passed_on(environ)),
        *container.options,
        f"--entrypoint={container.python}",
        container.image,
        *AGENT,
    )


def find_runtime() -> str:
    """Return the runtime for containers of this host.

    Raises:
        ConfigError: it has none.
    """
    for name in RUNTIMES:
        if shutil.which(name) is not None:
            return name
    raise ConfigError("container.image needs podman or docker, and this host has neither")


def _user_options(runtime: str, uid: int, gid: int) -> tuple[str, ...]:
    """Return the options with which files of the ranks belong to the user."""
    if uid == 0:
        return ()
    return ("--userns=keep-id",) if runtime == "podman" else (f"--user={uid}:{gid}",)


def _gpu_options(runtime: str, num_gpus: int) -> tuple[str, ...]:
    if not num_gpus:
        return ()
    return ("--device=nvidia.com/gpu=all",) if runtime == "podman" else ("--gpus=all",)


def _passed_on(environ: Mapping[str, str]) -> list[str]:
    """Return the names of variables that choose GPUs and shares of them."""
    names = ("CUDA_VISIBLE_DEVICES", *gpu_share_environment(1.0, {}))
    return [name for name in names if name in environ]


def parse_container(fields: Mapping[str, Any] | None) -> ContainerImage | None:
    """Return the image in parsed JSON, or None."""
    if fields is None:
        return None
    return ContainerImage(
        image=fields["image"],
        runtime=fields["runtime"],
        python=fields["python"],
        options=tuple(fields["options"]),
        volumes=tuple(fields["volumes"]),
    )
