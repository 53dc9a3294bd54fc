"""The class `RelayLab`, a lab without namespaces, and the choice between the two kinds of labs."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from slipstream.errors import ConfigError, UnsupportedError
from slipstream.lab.lab import Lab
from slipstream.lab.network import LabCounters, Network
from slipstream.lab.relay import ADDRESS, Relay
from slipstream.lab.spec import LabSpec
from slipstream.settings import relay_environment

_log = logging.getLogger(__name__)

LIBRARY = "libslipstream-relay.so"


class RelayLab(Lab):
    """A lab whose hosts are groups of ordinary processes, and whose links are a relay.

    It needs neither root nor namespaces. All hosts have the address 127.0.0.1, and their links
    cannot be changed or cut. Only TCP connections between hosts are shaped. The lab ends with this
    process.

    Args:
        spec: Description of the lab.
    """

    def __init__(self, spec: LabSpec) -> None:
        super().__init__(spec)
        self._library = relay_library()
        self._relay = Relay(spec)
        self._stack = ExitStack()

    @property
    def addresses(self) -> tuple[str, ...]:
        """IPv4 address of each host, which is the same for all."""
        return (ADDRESS,) * self.spec.hosts

    @property
    def interface(self) -> str:
        """Name of the network interface of every host."""
        return "lo"

    @property
    def is_relayed(self) -> bool:
        """Whether a relay is the links of this lab."""
        return True

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Names of the network namespaces, of which there are none."""
        return ()

    def up(self) -> None:
        """Start the relay."""
        self._stack.enter_context(self._relay)

    def down(self) -> None:
        """End the relay; do nothing if it has ended."""
        self._stack.close()

    def counters(self) -> LabCounters:
        """Return the payload that every link has carried since the lab was made."""
        return self._relay.counters()

    def _links(self) -> Network:
        raise UnsupportedError(
            "the links of a lab with a relay cannot be changed, cut or mended; use a lab of network"
            " namespaces, as root: slipstream lab up"
        )

    def _namespace(self, host: int) -> str | None:
        return None

    def _position(self, host: int) -> dict[str, str]:
        address = self._relay.address_for(host)
        return super()._position(host) | relay_environment(self._library, address, os.environ)


def relay_library() -> Path:
    """Return the path of the library for the ranks, which is installed beside the C++ engine.

    Raises:
        ConfigError: this installation has no such library.
    """
    engine = importlib.util.find_spec("slipstream._core")
    library = Path(engine.origin).with_name(LIBRARY) if engine and engine.origin else None
    if library is None or not library.is_file():
        raise ConfigError(
            f"{LIBRARY} is not installed beside Slipstream's engine; install Slipstream again, from"
            " its wheel or with `make`"
        )
    return library


@contextmanager
def open_lab(spec: LabSpec, *, relay: bool = False) -> Generator[Lab]:
    """Yield a lab of namespaces, or one with a relay where namespaces cannot be made.

    `Lab.is_relayed` says which of the two it is.

    Args:
        spec: Description of the lab.
        relay: Whether to use a relay even where namespaces can be made (default False).
    """
    lab = _made(spec, relay=relay)
    try:
        yield lab
    finally:
        lab.down()


def _made(spec: LabSpec, *, relay: bool) -> Lab:
    lab = RelayLab(spec) if relay or spec.delay_seconds else Lab(spec)
    try:
        lab.up()
    except UnsupportedError as error:
        if lab.is_relayed:
            raise
        _log.info("the lab has a relay, because namespaces cannot be made: %s", error)
        return _made(spec, relay=True)
    return lab
