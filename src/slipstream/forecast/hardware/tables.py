"""What the data files say, checked when they are read."""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeVar

import tomli
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from slipstream.errors import ConfigError, UsageError

Rate = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, le=1)]
TABLES = ("device", "link", "flow_cap", "offer")


def _day(text: str) -> str:
    """A year, a month or a day, as 2026-11 or 2026-11-24."""
    datetime.date.fromisoformat(text + "-01" * (2 - text.count("-")))
    return text


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Device(_Row):
    """A GPU, or the processors of a host.

    `tflops` are dense peaks in 1e12 FLOP/s by dtype ("float32", "tf32", "float16", "bfloat16",
    "float8", "int8"), of matrix units where they take it. Rates are in 1e9 bytes per second.
    `context_mib` is what a process takes of its memory before it has a tensor: the context, kernels
    and workspaces of libraries.
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


class Link(_Row):
    """What joins devices of a host, a device and its host, or hosts: payload in one direction.

    `among` has, where each device is wired to some others, the share of its rate that goes to those
    of the first few of a host, by their number; the largest is of hosts without a switch.
    """

    name: str
    kind: Literal["device", "host", "network"]
    gbyte_per_s: Rate
    among: dict[int, Share] = {}
    latency_us: Rate
    source: str

    def share(self, devices: int, per_host: int) -> float:
        """Returns the share of the rate that the first devices of a host have among them.

        Args:
            devices: that talk to each other, 2 at least.
            per_host: devices of the host.
        """
        if per_host > max(self.among, default=0):
            return 1.0
        return next(self.among[size] for size in sorted(self.among) if size >= devices)


class FlowCap(_Row):
    """The most that one connection gets in a cloud."""

    cloud: str
    gbit_per_s: Rate
    condition: str
    source: str


class Offer(_Row):
    """An instance that can be rented, as its price was on a day; `count` devices are in it."""

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


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")
    device: list[Device] = []
    link: list[Link] = []
    flow_cap: list[FlowCap] = []
    offer: list[Offer] = []
    # What software reaches of them is read by `slipstream.forecast.simulate.parameters`.
    rates: dict[str, Any] = {}
    wire: dict[str, Any] = {}
    runtimes: dict[str, Any] = {}


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_T = TypeVar("_T", bound=_Named)


class Hardware(_Row):
    """Everything that is known, by name."""

    devices: Mapping[str, Device]
    links: Mapping[str, Link]
    flow_caps: tuple[FlowCap, ...]
    offers: tuple[Offer, ...]

    def device(self, text: str) -> Device:
        """Returns a device by its name or an alias, whatever the case.

        Args:
            text: as people write it, "A100-80GB" or "a100".

        Raises:
            UsageError: there is none; names those that are near.
        """
        known = {alias.lower(): each for each in self.devices.values() for alias in each.aliases}
        known |= {name.lower(): each for name, each in self.devices.items()}
        found = known.get(text.lower())
        if found is None:
            raise UsageError(f"no device is called {text!r}; {_near(text, known, self.devices)}")
        return found

    def link(self, text: str) -> Link:
        """Returns a link by its name.

        Raises:
            UsageError: there is none; names those that are near.
        """
        if text not in self.links:
            raise UsageError(f"no link is called {text!r}; {_near(text, self.links)}")
        return self.links[text]


def load(*places: Path | str) -> Hardware:
    """Reads the tables that come with Slipstream, and a user's. Blocks for some milliseconds.

    Args:
        places: .toml files or folders of them, with tables `device`, `link`, `flow_cap` or `offer`;
            what has a name that is there already takes its place.

    Raises:
        ConfigError: a file cannot be read, a value is not allowed, or a link or device is named
            that is nowhere.
    """
    own = Path(str(resources.files("slipstream.forecast.hardware") / "data"))
    files = [path for place in (own, *map(Path, places)) for path in files_of(place)]
    rows = [_read(path) for path in files]
    hardware = Hardware(
        devices=_by_name(each for file in rows for each in file.device),
        links=_by_name(each for file in rows for each in file.link),
        flow_caps=tuple(each for file in rows for each in file.flow_cap),
        offers=tuple(each for file in rows for each in file.offer),
    )
    _check_names(hardware)
    return hardware


def files_of(place: Path) -> list[Path]:
    """Returns a data file, or those of a folder.

    Args:
        place: a .toml file, or a folder of them.

    Raises:
        ConfigError: it is a folder without any.
    """
    files = [place] if place.suffix == ".toml" else sorted(place.glob("*.toml"))
    if not files:
        raise ConfigError(f"{place} has no .toml files; tables are {', '.join(TABLES)}")
    return files


def _read(path: Path) -> _File:
    try:
        with path.open("rb") as file:
            return _File.model_validate(tomli.load(file))
    except (OSError, tomli.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    except ValidationError as error:
        raise ConfigError(f"{path}: {_said(error)}") from error


def _said(error: ValidationError) -> str:
    """The first thing that is wrong, where it is, what it is and what is allowed."""
    first: Any = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
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


def _near(text: str, known: Iterable[str], said: Iterable[str] | None = None) -> str:
    """Those near a text; where none is, all that are known, or those that are to be said."""
    names = {name.lower(): name for name in sorted(known)}
    near = difflib.get_close_matches(text.lower(), names, n=3, cutoff=0.5)
    if near:
        return f"near: {', '.join(names[each] for each in near)}"
    return f"known: {', '.join(sorted(said or known))}"
