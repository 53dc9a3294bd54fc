"""Data files that describe hardware; they are validated when they are read."""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeVar

import tomli
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from slipstream.errors import ConfigError, UsageError, reason_of

Rate = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, le=1)]
TABLES = ("device", "link", "flow_cap", "offer")


def _day(text: str) -> str:
    """Check that a text is a year, a month or a day, such as 2026-11 or 2026-11-24."""
    datetime.date.fromisoformat(text + "-01" * (2 - text.count("-")))
    return text


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Device(_Entry):
    """A GPU, or all processors of a host.

    `tflops` has dense peak rates in TFLOP/s by dtype ("float32", "tf32", "float16", "bfloat16",
    "float8", "int8"), on matrix units if they support the dtype. `memory_gb_per_s` is in 1e9 bytes
    per second. `context_mib` is the device memory that a process uses before its first tensor: the
    context, kernels and workspaces of libraries.
    """

    name: str
    aliases: tuple[str, ...] = ()
    kind: Literal["gpu", "cpu"]
    memory_gib: Rate
    context_mib: Rate = 600
    memory_gb_per_s: Rate
    processors: Annotated[int, Field(gt=0)]
    cache_mib: Rate
    tflops: dict[str, Rate]
    device_link: str
    host_link: str
    year: int
    source: str


class Link(_Entry):
    """A link between the devices of a host, between a device and its host, or between hosts.

    `gbyte_per_s` is the rate of payload in one direction, in 1e9 bytes per second.

    In some hosts there is no switch, and each device is wired to only some of the other devices.
    For a host without a switch, `among` maps a number n to the share of `gbyte_per_s` at which the
    first n devices of the host exchange data. The largest n in `among` is the number of devices in
    the host.
    """

    name: str
    kind: Literal["device", "host", "network"]
    gbyte_per_s: Rate
    among: dict[int, Share] = {}
    latency_us: Rate
    source: str

    def share(self, devices: int, per_host: int) -> float:
        """Return the share of the link rate at which some devices of a host exchange data.

        Args:
            devices: Number n of devices that exchange data, at least 2: the first n of the host.
            per_host: Number of devices in the host.
        """
        if per_host > max(self.among, default=0):
            return 1.0
        return next(self.among[size] for size in sorted(self.among) if size >= devices)


class FlowCap(_Entry):
    """The highest rate that one connection reaches in a cloud."""

    cloud: str
    gbit_per_s: Rate
    condition: str
    source: str


class Offer(_Entry):
    """An instance type for rent with `count` devices, and its price on a given day."""

    cloud: str
    instance: str
    region: str
    device: str
    count: Annotated[int, Field(gt=0)]
    network_gbit_per_s: Rate | None = None
    dollars_per_hour: Rate
    market: Literal["on-demand", "spot"]
    date: Annotated[str, AfterValidator(_day)]
    source: str


class _DataFile(BaseModel):
    model_config = ConfigDict(extra="forbid")
    device: list[Device] = []
    link: list[Link] = []
    flow_cap: list[FlowCap] = []
    offer: list[Offer] = []
    # `slipstream.forecast.simulate.parameters` reads these tables: rates that software reaches.
    rates: dict[str, Any] = {}
    wire: dict[str, Any] = {}
    runtimes: dict[str, Any] = {}


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_T = TypeVar("_T", bound=_Named)


class Hardware(_Entry):
    """All known hardware; devices and links are found by name."""

    devices: Mapping[str, Device]
    links: Mapping[str, Link]
    flow_caps: tuple[FlowCap, ...]
    offers: tuple[Offer, ...]

    def device(self, text: str) -> Device:
        """Return a device by its name or an alias, ignoring case.

        Args:
            text: Name as people write it, such as "A100-80GB" or "a100".

        Raises:
            UsageError: No device has this name; the message suggests similar names.
        """
        devices = {
            alias.lower(): device for device in self.devices.values() for alias in device.aliases
        }
        devices |= {name.lower(): device for name, device in self.devices.items()}
        device = devices.get(text.lower())
        if device is None:
            raise UsageError(f"no device is called {text!r}; {_near(text, devices, self.devices)}")
        return device

    def link(self, text: str) -> Link:
        """Return a link by its name.

        Raises:
            UsageError: No link has this name; the message suggests similar names.
        """
        if text not in self.links:
            raise UsageError(f"no link is called {text!r}; {_near(text, self.links)}")
        return self.links[text]


def load(*places: Path | str) -> Hardware:
    """Read the hardware tables that Slipstream ships, and the tables of the user.

    The call blocks for some milliseconds.

    Args:
        places: Files (.toml) or folders of such files, with tables `device`, `link`, `flow_cap` or
            `offer`. A device or link replaces an earlier device or link with the same name.

    Raises:
        ConfigError: A file cannot be read, a value is not allowed, or a file refers to a link or
            device that no file defines.
    """
    shipped = Path(str(resources.files("slipstream.forecast.hardware") / "data"))
    files = [path for place in (shipped, *map(Path, places)) for path in files_of(place)]
    rows = [_read(path) for path in files]
    hardware = Hardware(
        devices=_by_name(device for file in rows for device in file.device),
        links=_by_name(link for file in rows for link in file.link),
        flow_caps=tuple(flow_cap for file in rows for flow_cap in file.flow_cap),
        offers=tuple(offer for file in rows for offer in file.offer),
    )
    _check_names(hardware)
    return hardware


def files_of(place: Path) -> list[Path]:
    """Return the data files at a location.

    Args:
        place: Location of a .toml file, or of a folder of .toml files.

    Raises:
        ConfigError: The location does not exist, or it is a folder without .toml files.
    """
    if not place.exists():
        raise ConfigError(
            f"{place} does not exist; allowed: a .toml file of slipstream forecast calibrate, or a"
            " folder of such files"
        )
    files = [place] if place.suffix == ".toml" else sorted(place.glob("*.toml"))
    if not files:
        raise ConfigError(
            f"{place} has no .toml files; add one with the tables {', '.join(TABLES)}"
        )
    return files


def _read(path: Path) -> _DataFile:
    try:
        with path.open("rb") as file:
            return _DataFile.model_validate(tomli.load(file))
    except (OSError, tomli.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {reason_of(error)}") from error
    except ValidationError as error:
        raise ConfigError(f"{path}: {_first_error(error)}") from error


def _first_error(error: ValidationError) -> str:
    """Return the first error: which value is missing, or which value is wrong and why."""
    first: Any = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"{where} is missing"
    return f"{where} is {first['input']!r}: {first['msg']}"


def _by_name(rows: Iterable[_T]) -> dict[str, _T]:
    return {row.name: row for row in rows}


def _check_names(hardware: Hardware) -> None:
    for device in hardware.devices.values():
        for link in (device.device_link, device.host_link):
            if link not in hardware.links:
                near = _near(link, hardware.links)
                raise ConfigError(f"device {device.name}: no link is called {link!r}; {near}")
    for offer in hardware.offers:
        if offer.device not in hardware.devices:
            raise ConfigError(
                f"offer {offer.cloud} {offer.instance}: no device is called {offer.device!r};"
                f" {_near(offer.device, hardware.devices)}"
            )


def _near(text: str, known: Iterable[str], listed: Iterable[str] | None = None) -> str:
    """Return text that suggests similar names or, if there are none, lists the known names.

    Args:
        text: Unknown name.
        known: Known names and aliases.
        listed: Names to list if no name is similar (default None: the names in `known`).
    """
    names = {name.lower(): name for name in sorted(known)}
    near = difflib.get_close_matches(text.lower(), names, n=3, cutoff=0.5)
    if near:
        return f"near: {', '.join(names[match] for match in near)}"
    return f"known: {', '.join(sorted(listed or known))}"
