"""This host as a machine: its GPUs are those that the driver names."""

import os

import pytest

from slipstream.cluster.queue.shapes import QueueGpu
from slipstream.cluster.queue.this_host import this_host
from slipstream.errors import ConfigError


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Return a function that puts a script in the place of nvidia-smi."""

    def install(script):
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return install


def test_gpus_have_the_names_and_memory_of_the_driver(driver):
    driver("echo 'NVIDIA H100 80GB HBM3, 81559'; echo 'NVIDIA H100 80GB HBM3, 81559'")
    machine = this_host()
    assert machine.gpus == (QueueGpu(kind="NVIDIA H100 80GB HBM3", memory_mib=81559),) * 2
    assert machine.cpus == len(os.sched_getaffinity(0))
    assert machine.memory_mib > 0


def test_without_a_driver_there_are_no_gpus(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert this_host().gpus == ()


def test_a_broken_driver_is_an_error(driver):
    driver("echo 'driver/library version mismatch' >&2; exit 18")
    with pytest.raises(ConfigError, match="driver/library version mismatch; mend the driver"):
        this_host()
