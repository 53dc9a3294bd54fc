"""Checks of this host for `slipstream doctor`; none imports a framework."""

import importlib
import importlib.util
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import (
    PackageNotFoundError,
    entry_points,
    packages_distributions,
    version,
)
from pathlib import Path
from typing import Literal

from slipstream.errors import ConfigError, reason_of
from slipstream.processor import processor_flags, processor_name
from slipstream.settings import Settings

# An address for documentation (RFC 5737). The route to it is the default route; nothing is sent.
ANYWHERE = "198.51.100.1"
CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")
SIMD_FLAGS = ("sse4_2", "avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve")

State = Literal["ok", "absent", "wrong"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One line of the doctor's screen.

    Args:
        topic: Heading under which the finding stands.
        name: Subject of the finding, such as a library.
        state: Result of the check: `ok`, `absent` for an optional part that is missing, or `wrong`
            for a problem.
        text: Result of the check in words.
        remedy: Advice that solves the problem; empty if there is nothing to do.
    """

    topic: str
    name: str
    state: State
    text: str
    remedy: str = ""


def find_everything(environ: Mapping[str, str], peer: str | None) -> list[Finding]:
    """Return the findings about this host, in less than a second.

    Args:
        environ: Environment of this process.
        peer: Host to which the route is looked up; None for the default route.
    """
    host = [_python(), _processor(), _memory(), _interface(environ, peer), _congestion(environ)]
    engine = [_settings(environ), _core(), _shared_memory()]
    frameworks = [_framework(name) for name in ("torch", "numpy", "tensorflow", "jax", "mxnet")]
    launchers = [_ssh(), _torchrun(), _program("mpirun", "openmpi-bin"), _program("srun", "slurm")]
    return [*host, *engine, *frameworks, *launchers]


# ---- this host ----


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


def _interface(environ: Mapping[str, str], peer: str | None) -> Finding:
    try:
        if peer is not None:
            socket.getaddrinfo(peer, None)
        from slipstream.comm.config import choose_listen_addresses  # the core may not be built

        chosen = choose_listen_addresses(Settings.from_environment(environ), peer or ANYWHERE)
    except ConfigError as error:
        return _network("wrong", "not chosen", str(error))
    except OSError as error:
        return _network(
            "wrong",
            f"no route to {peer} ({reason_of(error)})",
            "name a host that is known here",
        )
    except ImportError:
        return _network("absent", "not chosen, since the core is not built")
    first = chosen[0]
    reason = first.reason if peer else first.reason.replace(f"route to {ANYWHERE}", "default route")
    return _network("ok", f"{first.interface} ({first.address}): {reason}")


def _network(state: State, text: str, remedy: str = "") -> Finding:
    return Finding(topic="This host", name="interface", state=state, text=text, remedy=remedy)


def _congestion(environ: Mapping[str, str]) -> Finding:
    """Return the congestion control in use.

    If bulk data flows in both directions, acknowledgements wait in queues. BBR mistakes these
    delays for a slower network, so cubic is faster within a cluster.
    """
    name = "congestion control"
    try:
        chosen = Settings.from_environment(environ).congestion
        used = chosen or CONGESTION.read_text().strip()
    except (ConfigError, OSError):
        return Finding(topic="This host", name=name, state="absent", text="not known")
    remedy = "SLIPSTREAM_CONGESTION=cubic is faster within a cluster" if used == "bbr" else ""
    return Finding(topic="This host", name=name, state="ok", text=used, remedy=remedy)


# ---- the engine ----


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


# ---- frameworks and launchers ----


def _framework(name: str) -> Finding:
    if importlib.util.find_spec(name) is None:
        remedy = "pip install 'torch>=2.6'" if name == "torch" else ""
        return Finding(
            topic="Frameworks", name=name, state="absent", text="not installed", remedy=remedy
        )
    installed = _version_of(name)
    text = f"{installed}, {_torch_backend()}" if name == "torch" else installed
    return Finding(topic="Frameworks", name=name, state="ok", text=text)


def _version_of(module: str) -> str:
    """Return the version of the package that installs a module: tensorflow-cpu for tensorflow."""
    try:
        return version(module)
    except PackageNotFoundError:
        installed_by = packages_distributions().get(module)
        return version(installed_by[0]) if installed_by else "of unknown version"


def _torch_backend() -> str:
    names = [point.name for point in entry_points(group="torch.backends")]
    if "slipstream" in names:
        return 'backend "slipstream" registers itself'
    return 'backend "slipstream" only after import slipstream.torch'


def _ssh() -> Finding:
    program = _program("ssh", "openssh-client")
    if program.state != "ok":
        return program
    version_line = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=False).stderr
    text = f"{version_line.split(',')[0].strip()}, {program.text}"
    return Finding(topic=program.topic, name=program.name, state="ok", text=text)


def _torchrun() -> Finding:
    beside = Path(sys.executable).with_name("torchrun")
    path = str(beside) if beside.exists() else shutil.which("torchrun")
    state: State = "ok" if path else "absent"
    return Finding(topic="Launchers", name="torchrun", state=state, text=path or "comes with torch")


def _program(name: str, package: str) -> Finding:
    path = shutil.which(name)
    if path is None:
        remedy = f"apt install {package}" if package != "slurm" else ""
        text = "not found" if remedy else "not found; it comes with a Slurm cluster"
        return Finding(topic="Launchers", name=name, state="absent", text=text, remedy=remedy)
    return Finding(topic="Launchers", name=name, state="ok", text=path)
