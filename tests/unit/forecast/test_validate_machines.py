"""Devices, hosts and networks of rows, as their columns are written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slipstream.forecast.hardware import load
from slipstream.forecast.validate.machines import machine
from slipstream.forecast.validate.row import TableRow, UnreadableError

RowOf = Callable[..., TableRow]


@pytest.mark.parametrize(
    ("text", "gbit"),
    [
        ("EDR", 100),
        ("HDR", 200),
        ("NDR", 400),
        ("XDR", 800),
        ("8x HDR", 1600),
        ("4 x 12.5", 50),
        ("1.6 Tb", 1600),
        ("InfiniBand", 100),
        ("25 Gb/s", 25),
        ("12.5/GPU", 100),
    ],
)
def test_ports_of_a_host_add_up(row_of: RowOf, text: str, gbit: float):
    found = machine(row_of(network_gbps=text), load())
    assert found.network_gbit == gbit
    assert ("network_gbit" in found.assumed) == (text == "InfiniBand")


@pytest.mark.parametrize(
    ("gpu", "gbit"), [("P100", 800), ("V100-SXM2-16GB", 800), ("A100-80GB", 1600), ("H100", 3200)]
)
@pytest.mark.parametrize("ports", ["HDR; not stated", "EDR; not stated", "HDR/EDR; not stated"])
def test_hosts_of_nvidia_have_the_ports_of_their_year(
    row_of: RowOf, gpu: str, gbit: float, ports: str
):
    found = machine(row_of(network_gbps=ports, gpu=gpu), load())
    assert (found.network_gbit, found.assumed) == (gbit, ("network_gbit",))


@pytest.mark.parametrize(
    ("source", "gpu", "name", "assumed"),
    [
        ("torchtitan benchmarks", "H100", "H100-96GB", True),
        ("torchtitan H100 (2024-12)", "H100 96GB HBM2e", "H100-96GB", False),
        ("torchtitan H200 (Trainy 2025-06)", "H200", "H200", False),
        ("llm-foundry MPT benchmarks", "H100", "H100", False),
    ],
)
def test_those_who_make_torchtitan_have_other_memory(
    row_of: RowOf, source: str, gpu: str, name: str, assumed: bool
):
    found = machine(row_of(source=source, gpu=gpu), load())
    assert (found.device.name, "device" in found.assumed) == (name, assumed)


@pytest.mark.parametrize(
    ("gpu", "devices", "per_host"),
    [
        ("V100", "8", 8),
        ("V100", "9", 8),
        ("V100", "7", 7),
        ("DGX-2 (16x V100)", "32", 16),
        ("HGX-2 (16x V100)", "32", 16),
        ("HGX-2 (16x V100)", "12", 12),
    ],
)
def test_a_host_has_eight_devices_where_none_are_said(
    row_of: RowOf, gpu: str, devices: str, per_host: int
):
    found = machine(row_of(gpus_per_node=" ", gpu=gpu, num_gpus=devices), load())
    assert found.per_host == per_host
    assert "per_host" in found.assumed
    # A network exists only with more than one host.
    assert (found.network_gbit is None) == (int(devices) == per_host)


@pytest.mark.parametrize(
    ("text", "name"),
    [("Volta", "V100"), ("ampere", "A100"), ("NVIDIA Hopper", "H100"), ("Pascal GPUs", "P100")],
)
def test_a_generation_stands_for_the_gpu_that_was_trained_on(row_of: RowOf, text: str, name: str):
    found = machine(row_of(gpu=text), load())
    assert found.device == load().device(name)
    assert found.assumed == ("device",)


@pytest.mark.parametrize("text", ["P100 + V100", "V100+T4", "mixed GPUs"])
def test_devices_of_two_kinds_are_not_read(row_of: RowOf, text: str):
    with pytest.raises(UnreadableError, match="rows with one kind of device can be read"):
        machine(row_of(gpu=text), load())


def test_an_unknown_device_is_answered_with_three_that_are_known(row_of: RowOf):
    first = ", ".join(sorted(load().devices)[:3])
    with pytest.raises(UnreadableError, match=f"such as {first}$"):
        machine(row_of(gpu="Ascend 910"), load())
