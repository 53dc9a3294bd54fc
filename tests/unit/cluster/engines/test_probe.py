"""What a host lacks for a job: each resource of a job is checked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slipstream.cluster.engines.probe import HostFacts, missing_software, probe, shortcomings
from slipstream.cluster.engines.this_host import ThisHost
from slipstream.cluster.spec import check_job

FACTS = HostFacts(
    home="/home/me",
    python=(3, 12, 1),
    machine="x86_64",
    tools=("tmux", "rsync", "git"),
    cores=8,
    memory=16 << 30,
    disk=100 << 30,
    gpus=("NVIDIA H100 80GB HBM3, 81559", "NVIDIA T4, 15360"),
    cuda="12.4",
    cudnn="9.1.0",
    has_slipstream=True,
    devices={"fpga": 1},
    skew_seconds=0.5,
)


@pytest.mark.parametrize(
    ("fields", "lacks"),
    [
        ({"resources": {"gpus": 2, "cpus": 8, "memory": "16GiB", "disk": "100GiB"}}, []),
        ({"resources": {"gpus": 2, "gpu": "H100"}}, ["2 GPUs H100, has 1"]),
        ({"resources": {"gpu": "A100"}}, ["1 GPUs A100, has 0"]),
        ({"resources": {"cpus": 9}}, ["9 processors, has 8"]),
        ({"resources": {"memory": "17GiB"}}, ["17 GiB of memory, has 16.0"]),
        ({"resources": {"disk": "1024GiB"}}, ["1024 GiB of free disk in /home/me, has 100.0"]),
        ({"resources": {"accelerators": {"fpga": 1}}}, []),
        ({"resources": {"accelerators": {"fpga": 2}}}, ["2 of /dev/fpga*"]),
        ({"software": {"cuda": "12", "cudnn": "9"}}, []),
        ({"software": {"cuda": "13", "cudnn": "8"}}, ["CUDA 13, has 12.4", "cuDNN 8, has 9.1.0"]),
    ],
)
def test_a_host_lacks_what_the_job_wants_more_of(fields: dict[str, Any], lacks: list[str]) -> None:
    job = check_job({"name": "a", "command": "a", **fields}, "the job")
    assert shortcomings(FACTS, job) == lacks


def test_a_share_needs_a_gpu_and_ssh_hosts_need_tools() -> None:
    share = {"resources": {"gpu_memory": "8GiB"}, "code": {"git": "x"}}
    job = check_job({"name": "a", "command": "a", **share}, "the job")
    bare = replace(FACTS, gpus=(), tools=("tmux",))
    assert shortcomings(bare, job) == ["a GPU of which a share is used (gpu_memory)"]
    assert missing_software(bare, job) == ["the tool rsync", "the tool git"]


def test_devices_of_a_host_are_counted_by_their_names(tmp_path: Path) -> None:
    wanted = {"accelerators": {"null": 1, "nothing-of-this-name": 1}}
    job = check_job({"name": "a", "command": "a", "resources": wanted}, "the job")
    facts = probe(ThisHost(), job, str(tmp_path))
    assert facts.devices == {"null": 1, "nothing-of-this-name": 0}
    assert shortcomings(facts, job) == ["1 of /dev/nothing-of-this-name*"]
