"""Checks of this host's hardware, resource limits and communication engine."""

from __future__ import annotations

import importlib
import os
import platform
import re
import resource
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from slipstream.cli.findings.finding import Finding, State
from slipstream.errors import ConfigError, reason_of
from slipstream.processor import processor_flags, processor_name
from slipstream.settings import Settings

SIMD_FLAGS = ("sse4_2", "avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve")


def host_findings() -> list[Finding]:
    """Return the findings about Python, the processor, the memory and the resource limits."""
    return [_python(), _processor(), _memory(), _limits()]


def engine_findings(environ: Mapping[str, str]) -> list[Finding]:
    """Return the findings about the communication engine and its settings."""
    return [_settings(environ), _core(), _shared_memory()]


def _python() -> Finding:
    text = f"{platform.python_version()}, {sys.executable}"
    return Finding(topic="This host", name="Python", state="ok", text=text)


def _processor() -> Finding:
    flags = processor_flags()
    simd = [flag for flag in SIMD_FLAGS if flag in flags]
    usable, present = len(os.sched_getaffinity(0)), os.cpu_count()
    text = f"{processor_name()}, {usable} of {present} cores usable, {' '.join(simd) or 'no SIMD'}"
    return Finding(topic="This host", name="processor", state="ok", text=text)


def _memory() -> Finding:
    kilobytes = dict(re.findall(r"^(\w+):\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.M))
    total, available = (int(kilobytes[name]) / 2**20 for name in ("MemTotal", "MemAvailable"))
    text = f"{total:.1f} GiB, {available:.1f} GiB of it available"
    return Finding(topic="This host", name="memory", state="ok", text=text)


def _limits() -> Finding:
    locked, files = (
        resource.getrlimit(which)[0] for which in (resource.RLIMIT_MEMLOCK, resource.RLIMIT_NOFILE)
    )
    memory = "unlimited" if locked == resource.RLIM_INFINITY else f"{locked / 2**20:g} MiB"
    text = f"{memory} of locked memory, {files} open files"
    return Finding(topic="This host", name="limits", state="ok", text=text)


def _settings(environ: Mapping[str, str]) -> Finding:
    try:
        Settings.from_environment(environ)
    except ConfigError as error:
        return _engine("settings", "wrong", str(error), "see docs/settings.md")
    names = sorted(name for name in environ if name.startswith("SLIPSTREAM_"))
    return _engine("settings", "ok", ", ".join(names) or "all at their defaults")


def _core() -> Finding:
    try:
        core = importlib.import_module("slipstream._core")
    except ImportError as error:
        remedy = "make, or pip install . in a checkout of Slipstream"
        return _engine("core", "wrong", f"not built ({error})", remedy)
    return _engine("core", "ok", f"Slipstream {version('slipstream')}, SIMD {core.simd_target()}")


def _shared_memory() -> Finding:
    try:
        descriptor = os.memfd_create("slipstream-doctor")
        os.ftruncate(descriptor, 1 << 20)
        os.close(descriptor)
    except OSError as error:
        remedy = "allow memfd_create in the container's seccomp profile"
        return _engine("shared memory", "wrong", f"memfd: {reason_of(error)}", remedy)
    return _engine("shared memory", "ok", "memfd works; nothing is kept in /dev/shm")


def _engine(name: str, state: State, text: str, remedy: str = "") -> Finding:
    return Finding(topic="Engine", name=name, state=state, text=text, remedy=remedy)
