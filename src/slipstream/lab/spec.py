"""Description of a lab: hosts, racks and the rates of the links between them."""

from dataclasses import dataclass

from slipstream.errors import UsageError
from slipstream.lab.rates import parse_rate
from slipstream.units import parse_duration

MAX_HOSTS = 64
MAX_RANKS_PER_HOST = 64
MAX_FLOW_CLASSES = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class LabSpec:
    """Hosts on one switch, or in racks whose switches are connected by a spine switch.

    Rates are texts such as 1gbit or 12.5mbit, and apply to each direction of a link.

    Args:
        hosts: Number of hosts, 1 to 64 (default 4).
        ranks_per_host: Number of ranks that `run` starts on each host, 1 to 64 (default 1).
        rate: Bit rate of every host's link (default "1gbit").
        rates: Bit rates of the hosts' links, one per host, which replace `rate` (default empty).
        flow_rate: Highest bit rate of each path (default None: no limit). A path is a group of TCP
            connections that share one limit. A hash of the destination address and the ports
            assigns each connection to a path.
        flow_rates: Highest bit rates of the paths, one per path, in place of `flow_rate` and
            `flow_classes` (default empty).
        flow_classes: Number of paths to which connections are assigned if `flow_rate` is set, 1 to
            1024 (default 64). Each path has the bit rate `flow_rate`.
        racks: Number of racks, to which the hosts are assigned evenly, in order of their numbers
            (default 1).
        uplink: Bit rate of the link between a rack and the spine; required with two or more racks
            (default None).
        delay: Time that bytes travel between two hosts, in one direction, such as "5ms" (default
            "0s"). Only a lab with a relay can delay.

    Raises:
        UsageError: a value is not allowed, or two values contradict each other.
    """

    hosts: int = 4
    ranks_per_host: int = 1
    rate: str = "1gbit"
    rates: tuple[str, ...] = ()
    flow_rate: str | None = None
    flow_rates: tuple[str, ...] = ()
    flow_classes: int = 64
    racks: int = 1
    uplink: str | None = None
    delay: str = "0s"

    def __post_init__(self) -> None:
        _check_count("hosts", self.hosts, MAX_HOSTS)
        _check_count("ranks_per_host", self.ranks_per_host, MAX_RANKS_PER_HOST)
        _check_count("flow_classes", self.flow_classes, MAX_FLOW_CLASSES)
        _check_count("racks", self.racks, self.hosts)
        for name, text in self._all_rates():
            parse_rate(text, name)
        parse_duration(self.delay, "delay")
        self._check_combination()

    @property
    def world_size(self) -> int:
        """Number of ranks if a run uses all hosts."""
        return self.hosts * self.ranks_per_host

    @property
    def link_rates(self) -> tuple[int, ...]:
        """Bit rate of each host's link in bits per second."""
        return tuple(parse_rate(text) for text in self.rates or (self.rate,) * self.hosts)

    @property
    def flow_caps(self) -> tuple[int, ...]:
        """Highest rate of each path in bits per second; empty if connections are not limited."""
        if self.flow_rates:
            return tuple(parse_rate(text) for text in self.flow_rates)
        return (parse_rate(self.flow_rate),) * self.flow_classes if self.flow_rate else ()

    @property
    def uplink_rate(self) -> int | None:
        """Bit rate between a rack and the spine in bits per second; None without a spine."""
        return parse_rate(self.uplink) if self.uplink else None

    @property
    def delay_seconds(self) -> float:
        """Seconds that bytes travel between two hosts, in one direction."""
        return parse_duration(self.delay, "delay")

    def rack_of(self, host: int) -> int:
        """Return the number of the rack of a host."""
        return host * self.racks // self.hosts

    def _all_rates(self) -> list[tuple[str, str]]:
        single = [("rate", self.rate), ("flow_rate", self.flow_rate), ("uplink", self.uplink)]
        several = [("rates", text) for text in self.rates]
        several += [("flow_rates", text) for text in self.flow_rates]
        return [(name, text) for name, text in single if text is not None] + several

    def _check_combination(self) -> None:
        if self.rates and len(self.rates) != self.hosts:
            raise UsageError(
                f"rates has {len(self.rates)} values for {self.hosts} hosts; give one per host"
            )
        if self.flow_rate and self.flow_rates:
            raise UsageError("flow_rate and flow_rates are both given; give one of them")
        if len(self.flow_rates) > MAX_FLOW_CLASSES:
            raise UsageError(
                f"flow_rates has {len(self.flow_rates)} values; allowed: up to {MAX_FLOW_CLASSES}"
            )
        if (self.racks > 1) != (self.uplink is not None):
            raise UsageError(
                f"racks is {self.racks} and uplink is {self.uplink!r}; give uplink if, and only if,"
                " there are two or more racks"
            )


def _check_count(name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise UsageError(f"{name} is {value}; allowed: 1 to {most}")
