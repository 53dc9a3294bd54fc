"""The probe of a host: what it has, in one call, and whether that is enough for a job."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import dataclass
from typing import Protocol

from slipstream.cluster.engines.ssh_host import CommandFailedError
from slipstream.cluster.spec import JobSpec
from slipstream.errors import ConfigError, PeerError, SlipstreamError

# Clocks that differ by more make deadlines and logs wrong.
MAX_SKEW_SECONDS = 60.0

# Prints one JSON object; only a shell and the named Python are needed.
_SCRIPT = """\
home={home}; case $home in '~'*) home=$HOME${{home#'~'}};; esac
mkdir -p "$home" || exit 3
exec {python} - "$home" <<'END'
import glob, json, os, shutil, subprocess, sys, time
home = sys.argv[1]
def gpus():
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, timeout=20)
        return [line.strip() for line in listed.stdout.splitlines() if line.strip()]
    except (OSError, subprocess.TimeoutExpired):
        return []
def cuda():
    try:
        said = subprocess.run(["nvidia-smi"], capture_output=True, text=True, timeout=20).stdout
        return said.partition("CUDA Version:")[2].split()[0]
    except (OSError, IndexError, subprocess.TimeoutExpired):
        return ""
def cudnn():
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    found = [line.split()[-1] for line in listed.splitlines() if "libcudnn.so" in line]
    names = [os.path.basename(os.path.realpath(path)) for path in found]
    return max((name.partition(".so.")[2] for name in names), default="")
def importable():
    try:
        import slipstream
        return True
    except ImportError:
        return False
memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
print(json.dumps(dict(
    home=os.path.realpath(home), python=list(sys.version_info[:3]), machine=os.uname().machine,
    tools=[tool for tool in ("tmux", "rsync", "git") if shutil.which(tool)],
    cores=len(os.sched_getaffinity(0)), memory=memory, disk=shutil.disk_usage(home).free,
    gpus=gpus(), cuda=cuda(), cudnn=cudnn(), clock=time.time(), has_slipstream=importable(),
    devices={{name: len(glob.glob("/dev/" + name + "*")) for name in {accelerators}}})))
END
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFacts:
    """What a host has.

    Args:
        home: Absolute path of the folder for runs and environments.
        python: Version of Python.
        machine: Kind of processor, such as "x86_64".
        tools: Names of the tools that it has, of tmux, rsync and git.
        cores: Number of processors.
        memory: Memory in bytes.
        disk: Free disk space of `home` in bytes.
        gpus: Name and memory in MiB of each GPU, separated by a comma.
        cuda: Version of CUDA that the driver supports, or "".
        cudnn: Version of cuDNN that is installed for all programs, or "".
        has_slipstream: Whether its Python can import Slipstream.
        devices: Number of files of each named accelerator.
        skew_seconds: Time in seconds by which its clock is ahead of this machine's.
    """

    home: str
    python: tuple[int, int, int]
    machine: str
    tools: tuple[str, ...]
    cores: int
    memory: int
    disk: int
    gpus: tuple[str, ...]
    cuda: str
    cudnn: str
    has_slipstream: bool
    devices: dict[str, int]
    skew_seconds: float


class Shell(Protocol):
    """The interface of a host whose shell can be called."""

    @property
    def name(self) -> str:
        """Name of the host."""
        ...

    def run(self, script: str, *, what: str) -> str:
        """Run a script and return its output."""
        ...


def probe(host: Shell, spec: JobSpec, home: str) -> HostFacts:
    """Return what a host has.

    Args:
        host: Host to ask.
        spec: Job that will run there.
        home: Folder for runs on the host, perhaps with a leading ~.

    Raises:
        ConfigError: the host lets nobody in, or lacks Python.
        PeerError: the host cannot be reached.
    """
    script = _SCRIPT.format(
        home=shlex.quote(home),
        python=shlex.quote(spec.software.python),
        accelerators=repr(list(spec.resources.accelerators)),
    )
    began_at = time.time()
    try:
        answer = json.loads(host.run(script, what="looking at the host").splitlines()[-1])
    except CommandFailedError as error:
        raise _probe_error(host, spec, home, error) from error
    except (ValueError, IndexError) as error:
        raise PeerError(
            f"{host.name}: its shell prints no answer; does .bashrc end early?"
        ) from error
    skew = answer.pop("clock") - (began_at + time.time()) / 2
    lists = {name: tuple(answer.pop(name)) for name in ("python", "tools", "gpus")}
    return HostFacts(**lists, **answer, skew_seconds=skew)


def shortcomings(facts: HostFacts, spec: JobSpec) -> list[str]:
    """Return in words what the hardware, Python and the clock of a host lack for a job.

    Args:
        facts: Hardware and software of the host.
        spec: Job that will run there.
    """
    wanted = spec.resources
    gib = 2**30
    matching = [gpu for gpu in facts.gpus if wanted.gpu.lower() in gpu.lower()]
    num_gpus = wanted.gpus or int(bool(wanted.gpu))
    checks = [
        (len(matching) < num_gpus, f"{num_gpus} GPUs {wanted.gpu}, has {len(matching)}"),
        (facts.cores < wanted.cpus, f"{wanted.cpus} processors, has {facts.cores}"),
        (
            facts.memory < (wanted.memory or 0) * gib,
            f"{wanted.memory or 0:g} GiB of memory, has {facts.memory / gib:.1f}",
        ),
        (
            facts.disk < (wanted.disk or 0) * gib,
            f"{wanted.disk or 0:g} GiB of free disk in {facts.home}, has {facts.disk / gib:.1f}",
        ),
        (facts.python < (3, 10), f"Python 3.10 or newer, has {_version(facts.python)}"),
        (
            not _has_version(facts.cuda, spec.software.cuda),
            f"CUDA {spec.software.cuda}, has {facts.cuda or 'none'}",
        ),
        (
            not _has_version(facts.cudnn, spec.software.cudnn),
            f"cuDNN {spec.software.cudnn}, has {facts.cudnn or 'none'}",
        ),
        (
            abs(facts.skew_seconds) > MAX_SKEW_SECONDS,
            f"the right time, is {facts.skew_seconds:+.0f} s off (set up NTP)",
        ),
        (
            wanted.gpu_memory is not None and not facts.gpus,
            "a GPU of which a share is used (gpu_memory)",
        ),
    ]
    checks += [
        (facts.devices.get(name, 0) < count, f"{count} of /dev/{name}*")
        for name, count in wanted.accelerators.items()
    ]
    return [text for is_short, text in checks if is_short]


def missing_software(facts: HostFacts, spec: JobSpec) -> list[str]:
    """Return in words what a host lacks to be reached by ssh.

    Args:
        facts: Hardware and software of the host.
        spec: Job that will run there.
    """
    lacks = [f"the tool {tool}" for tool in ("tmux", "rsync") if tool not in facts.tools]
    if spec.software.environment == "existing" and not facts.has_slipstream:
        lacks.append(f"Slipstream in the environment of {spec.software.python}")
    if spec.code.git and "git" not in facts.tools:
        lacks.append("the tool git")
    return lacks


def _has_version(present: str, wanted: str) -> bool:
    return not wanted or present == wanted or present.startswith(f"{wanted}.")


def _version(numbers: tuple[int, int, int]) -> str:
    return ".".join(map(str, numbers))


def _probe_error(host: Shell, spec: JobSpec, home: str, error: SlipstreamError) -> ConfigError:
    return ConfigError(
        f"{host.name}: {spec.software.python} must be Python 3, and {home} a folder that"
        f" can be written ({error})"
    )
