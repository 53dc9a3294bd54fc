"""The command that starts an agent in a container."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from slipstream.cluster.head.container import ContainerImage, agent_argv
from slipstream.cluster.spec import check_job
from slipstream.errors import ConfigError, UsageError

IMAGE = ContainerImage(
    image="my-image", runtime="podman", python="python3.12", options=("--pids-limit=9",), volumes=()
)
FOLDER = Path("/home/me/.slipstream/runs/a-1")


def test_without_an_image_the_agent_runs_on_the_host() -> None:
    assert agent_argv(None, FOLDER, {}, num_gpus=0)[0] == sys.executable


def test_the_container_has_network_memory_and_files_of_the_host() -> None:
    argv = agent_argv(
        replace(IMAGE, volumes=("/data",)), FOLDER, {"CUDA_VISIBLE_DEVICES": "0"}, num_gpus=1
    )
    assert argv[:6] == ("podman", "run", "--rm", "--interactive", "--network=host", "--ipc=host")
    assert argv[-4:] == (
        "--entrypoint=python3.12",
        "my-image",
        "-m",
        "slipstream.cluster.launch.agent",
    )
    for option in (
        "--device=nvidia.com/gpu=all",
        f"--volume={FOLDER}:{FOLDER}",
        "--volume=/data:/data",
        "--env=CUDA_VISIBLE_DEVICES",
        "--pids-limit=9",
    ):
        assert option in argv
    assert "--env=PYTORCH_ALLOC_CONF" not in argv


def test_docker_gets_its_own_options_and_refuses_mounted_storage() -> None:
    docker = replace(IMAGE, runtime="docker")
    assert "--gpus=all" in agent_argv(docker, FOLDER, {}, num_gpus=8)
    with pytest.raises(ConfigError, match="not seen by Docker's daemon"):
        agent_argv(replace(docker, volumes=("/data",)), FOLDER, {}, num_gpus=0)


def test_a_host_without_a_runtime_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match="needs podman or docker, and this host has neither"):
        agent_argv(replace(IMAGE, runtime=""), FOLDER, {}, num_gpus=0)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"on": "local"}, "is for ssh hosts and clouds, not for local"),
        ({"on": "ssh", "software": {"packages": ["torch"]}}, "put it into the image my-image"),
        ({"on": "ssh", "software": {"setup": "make"}}, "software.setup is for ranks on the host"),
    ],
)
def test_what_belongs_into_the_image_is_refused(fields: dict[str, object], words: str) -> None:
    job = {"name": "a", "command": "a", "container": {"image": "my-image"}, **fields}
    with pytest.raises(UsageError) as caught:
        check_job(job, "the job")
    assert words in str(caught.value)
