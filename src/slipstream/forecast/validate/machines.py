"""The machine of a published measurement: devices, devices per host, and network."""

from __future__ import annotations

import re
from dataclasses import dataclass

from slipstream.forecast.hardware import Device, Hardware
from slipstream.forecast.validate.row import TableRow, UnreadableError, whole

# Devices of rows that name only a generation.
_GENERATIONS = {"pascal": "P100", "volta": "V100", "ampere": "A100", "hopper": "H100"}
# Rows of torchtitan were measured on Meta's H100s, which have another memory size
# (pytorch/torchtitan, benchmarks, "Hardware" in llama3_h100_202412_torchtitan.md and
# asyncTP_llama3_h100_2025-06_torchtitan.md).
_OF_TORCHTITAN = "H100-96GB"
# Number of devices per host if a row does not state it: 16 for DGX-2 and HGX-2, and 8 for other DGX
# hosts (NVIDIA, data sheets).
_HOSTS = {"dgx-2": 16, "hgx-2": 16}
_USUAL_HOST = 8
# Rates of InfiniBand ports in Gbit/s.
_PORTS = {"edr": 100.0, "hdr": 200.0, "ndr": 400.0, "xdr": 800.0}
# Total InfiniBand rate of a DGX host in Gbit/s, by the year from which its GPU is sold: eight ports
# of NDR, HDR and EDR.
_DGX_GBIT = ((2022, 3200.0), (2020, 1600.0), (0, 800.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMachine:
    """The machine on which a published measurement was made.

    Args:
        device: Device from the hardware tables.
        devices: Total number of devices.
        per_host: Number of devices in a host.
        network_gbit: Network rate of a host in Gbit/s; None if the rate is unknown or there is only
            one host.
        assumed: Names of the values above that the row does not state and that were assumed.
    """

    device: Device
    devices: int
    per_host: int
    network_gbit: float | None
    assumed: tuple[str, ...]


def machine(row: TableRow, hardware: Hardware) -> MeasuredMachine:
    """Return the machine on which a published measurement was made.

    Raises:
        UnreadableError: The device is unknown, or a number of devices is not a whole number.
    """
    device, assumed = _device(row.gpu, hardware)
    if device.name == "H100" and "torchtitan" in row.source.lower():
        device, assumed = hardware.device(_OF_TORCHTITAN), (*assumed, "device")
    devices = whole(row.num_gpus, "num_gpus")
    per_host = _per_host(row, devices)
    if not row.gpus_per_node.strip():
        assumed += ("per_host",)
    if devices <= per_host:
        network = None
    else:
        network, guessed = _network_gbit(row, device, per_host)
        assumed += guessed
    return MeasuredMachine(
        device=device, devices=devices, per_host=per_host, network_gbit=network, assumed=assumed
    )


def _device(text: str, hardware: Hardware) -> tuple[Device, tuple[str, ...]]:
    plain = _plain(text)
    if re.search(r"mixed|[a-z0-9]\s*\+\s*[a-z]", plain):
        raise UnreadableError(f"the devices are {text!r}; rows with one kind of device can be read")
    devices = {name: device for device in hardware.devices.values() for name in _names(device)}
    names = [name for name in devices if _pattern(name).search(plain)]
    if names:
        return devices[max(names, key=len)], ()
    for generation, name in _GENERATIONS.items():
        if generation in plain:
            return hardware.device(name), ("device",)
    raise UnreadableError(
        f"the device is {text!r}; devices in the hardware tables can be read, such as"
        f" {', '.join(sorted(hardware.devices)[:3])}"
    )


def _plain(text: str) -> str:
    """Return a text in lower case without counts such as "8x", and with "32gb" for "32G"."""
    counted = re.sub(r"\b\d+\s*x\s*(?=[a-z])", " ", text.lower())
    return re.sub(r"(?<![a-z\d])(\d+)\s*g(?:i?b)?\b", r"\1gb", counted)


def _names(device: Device) -> tuple[str, ...]:
    return (device.name.lower(), *device.aliases)


def _pattern(name: str) -> re.Pattern[str]:
    """Return a pattern that finds a name with "-", "_", blanks or nothing between its parts."""
    parts = [re.escape(part) for part in re.split(r"[-_ ]", name)]
    return re.compile(rf"(?<![a-z0-9]){'[-_ ]*'.join(parts)}(?![a-z0-9])")


def _per_host(row: TableRow, devices: int) -> int:
    if row.gpus_per_node.strip():
        return whole(row.gpus_per_node, "gpus_per_node")
    named = [count for name, count in _HOSTS.items() if name in row.gpu.lower()]
    usual = named[0] if named else _USUAL_HOST
    return min(usual, devices)


def _network_gbit(
    row: TableRow, device: Device, per_host: int
) -> tuple[float | None, tuple[str, ...]]:
    """Return the network rate of a host in Gbit/s, and ("network_gbit",) if the rate is a guess."""
    text = row.network_gbps.lower()
    if "not stated" in text and ("hdr" in text or "edr" in text):
        return next(gbit for year, gbit in _DGX_GBIT if device.year >= year), ("network_gbit",)
    if match := re.search(r"(\d+)\s*x\s*(\d+(?:\.\d+)?)", text):
        return float(match[1]) * float(match[2]), ()
    if match := re.search(r"(?:(\d+)\s*x\s*)?\b([ehnx]dr)\b", text):
        return int(match[1] or 1) * _PORTS[match[2]], ()
    if match := re.search(r"(?<![\w.])(\d+(?:\.\d+)?)(?:\s*(tb))?", text):
        of_device = "per gpu" in text or "/gpu" in text or "torchtitan" in row.source.lower()
        gbit = float(match[1]) * (1000.0 if match[2] else 1.0)
        return gbit * (per_host if of_device else 1), ()
    if re.search(r"\bib\b|infiniband", text):
        return _PORTS["edr"], ("network_gbit",)
    return None, ()
