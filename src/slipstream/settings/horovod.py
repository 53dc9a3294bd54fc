"""The HOROVOD_* variables that Slipstream reads, for scripts and job files that set them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from slipstream.settings.kinds import (
    FLAG,
    INTERFACES,
    TEXT,
    InterfaceFilter,
    Kind,
    integer,
    seconds,
)
from slipstream.settings.variables import Settings, variables

_PREFIX = "HOROVOD_"
_NEVER = 1e9  # seconds

# Variables that `slipstream run` sets, because scripts that were written for Horovod read them.
_OF_RANKS = frozenset(
    f"{_PREFIX}{name}"
    for name in ("RANK", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "HOSTNAME")
)


def _variable(default: Any, name: str, kind: Kind[Any]) -> Any:
    return field(default=default, metadata={"name": _PREFIX + name, "kind": kind})


@dataclass(frozen=True, kw_only=True, slots=True)
class HorovodSettings:
    """The options of the Horovod API in the environment.

    Args:
        fusion_bytes: HOROVOD_FUSION_THRESHOLD: largest size in bytes to which ready tensors are
            fused (default 64 MiB); 0 turns fusion off.
        cycle_milliseconds: HOROVOD_CYCLE_TIME: shortest time in milliseconds from one negotiation
            to the next (default 0). A negotiation begins as soon as a rank has a new tensor.
        stall_seconds: HOROVOD_STALL_CHECK_TIME_SECONDS: age in seconds at which a tensor that some
            ranks have not submitted is reported as stalled (default 60).
        stall_shutdown_seconds: HOROVOD_STALL_SHUTDOWN_TIME_SECONDS: age in seconds at which a
            stalled tensor fails on all ranks. No tensor fails if the age is 0 (the default) or
            below `stall_seconds`, or if stalls are not reported.
        reports_no_stalls: HOROVOD_STALL_CHECK_DISABLE: Whether stalled tensors are not reported.
        known_tensors: HOROVOD_CACHE_CAPACITY: number of tensors that the negotiation remembers
            (default 65536).
        separates_groups: HOROVOD_DISABLE_GROUP_FUSION: Whether groups of tensors are not fused with
            other tensors.
        dynamic_process_sets: HOROVOD_DYNAMIC_PROCESS_SETS: Whether process sets may be added after
            init().
        timeline: HOROVOD_TIMELINE: file for a timeline that begins in init(); with the value
            DYNAMIC, the script itself starts the timeline.
        marks_cycles: HOROVOD_TIMELINE_MARK_CYCLES: Whether the timeline marks each round of the
            negotiation.
        launched_size: HOROVOD_SIZE: number of ranks, which is set if one of Horovod's own launchers
            was used.
        iface: HOROVOD_GLOO_IFACE: network interfaces that may be used.
        connect_seconds: HOROVOD_GLOO_TIMEOUT_SECONDS: time in seconds that ranks wait for each
            other in init().
        may_grow: Whether the job is elastic, so that ranks may join later.
        ignored: Names of HOROVOD_* variables that are set but have no effect in Slipstream.
    """

    fusion_bytes: int = _variable(64 << 20, "FUSION_THRESHOLD", integer(0, 1 << 40))
    cycle_milliseconds: float = _variable(0.0, "CYCLE_TIME", seconds(0, 1e6))
    stall_seconds: float = _variable(60.0, "STALL_CHECK_TIME_SECONDS", seconds(0, _NEVER))
    stall_shutdown_seconds: float = _variable(
        0.0, "STALL_SHUTDOWN_TIME_SECONDS", seconds(0, _NEVER)
    )
    reports_no_stalls: bool = _variable(False, "STALL_CHECK_DISABLE", FLAG)
    known_tensors: int = _variable(65536, "CACHE_CAPACITY", integer(0, 2**32 - 1))
    separates_groups: bool = _variable(False, "DISABLE_GROUP_FUSION", FLAG)
    dynamic_process_sets: bool = _variable(False, "DYNAMIC_PROCESS_SETS", FLAG)
    timeline: str | None = _variable(None, "TIMELINE", TEXT)
    marks_cycles: bool = _variable(False, "TIMELINE_MARK_CYCLES", FLAG)
    launched_size: int | None = _variable(None, "SIZE", integer(1, 2**31 - 1))
    iface: InterfaceFilter | None = _variable(None, "GLOO_IFACE", INTERFACES)  # noqa: RUF009  it is frozen
    connect_seconds: float | None = _variable(None, "GLOO_TIMEOUT_SECONDS", seconds(1, 86400))
    may_grow: bool = False
    ignored: tuple[str, ...] = ()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> HorovodSettings:
        """Read the variables; a variable that is set to the empty string counts as unset.

        Raises:
            ConfigError: a value is not allowed; the message names the variable.
        """
        values: dict[str, Any] = {}
        with_effect = set(_OF_RANKS)
        for item in cls.__dataclass_fields__.values():
            if not item.metadata:
                continue
            name, kind = item.metadata["name"], item.metadata["kind"]
            with_effect.add(name)
            if environ.get(name):
                values[item.name] = kind.read(name, environ[name])
        names = sorted(name for name in environ if name.startswith(_PREFIX))
        ignored = tuple(name for name in names if name not in with_effect)
        engine = Settings.from_environment(environ)
        may_grow = engine.max_ranks is not None or bool(engine.members)
        return cls(**values, may_grow=may_grow, ignored=ignored)

    def of_engine(self, environ: Mapping[str, str] = os.environ) -> Settings:
        """Return the engine's settings; SLIPSTREAM_* variables override HOROVOD_* variables.

        Raises:
            ConfigError: a SLIPSTREAM_* value is not allowed; the message names the variable.
        """
        settings = Settings.from_environment(environ)
        iface = self.iface and replace(self.iface, exact=True)
        values = {"iface": iface, "connect_timeout_seconds": self.connect_seconds}
        chosen: dict[str, Any] = {
            name: value
            for name, value in values.items()
            if value is not None and not environ.get(variables()[name].name)
        }
        return replace(settings, **chosen)

    @property
    def stall_after_seconds(self) -> float:
        """Age in seconds at which a stalled tensor is reported."""
        return _NEVER if self.reports_no_stalls or not self.stall_seconds else self.stall_seconds

    @property
    def shutdown_after_seconds(self) -> float:
        """Age in seconds at which a stalled tensor fails, by Horovod's rules; 0 for never."""
        is_on = self.stall_shutdown_seconds >= self.stall_after_seconds
        return self.stall_shutdown_seconds if is_on else 0.0
