"""What a host prints about its load, with and without GPUs."""

from __future__ import annotations

import json

from slipstream.cluster.control.host_load import GpuLoad, host_loads, parse_load
from slipstream.cluster.engines.this_host import ThisHost


def test_gpus_whose_driver_does_not_know_a_value_are_shown() -> None:
    gpus = [["NVIDIA H200", "87", "1024", "143771", "[N/A]"]]
    values = {"cores": 4, "load": 1.5, "memory": [100, 25], "gpus": gpus, "busy": 0.5}
    load = parse_load("node1", f"a greeting of the shell\n{json.dumps(values)}\n")
    assert (load.host, load.cores, load.memory_used, load.memory_total) == ("node1", 4, 75, 100)
    assert load.gpus == (
        GpuLoad(
            name="NVIDIA H200",
            busy=0.87,
            memory_used=2.0**30,
            memory_total=143771 * 2.0**20,
            watts=None,
        ),
    )


def test_this_host_tells_its_load() -> None:
    (load,) = host_loads([ThisHost()])
    assert load.problem == ""
    assert 0.0 <= load.busy <= 1.0
    assert 0 < load.memory_used < load.memory_total
