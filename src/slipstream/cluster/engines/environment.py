"""The Python environment of a run on a host: made once for each list of packages, then cached."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from slipstream.cluster.engines.probe import HostFacts
from slipstream.cluster.engines.this_host import HostWithFiles
from slipstream.cluster.own_wheel import build_own_wheel
from slipstream.cluster.spec import JobSpec
from slipstream.errors import ConfigError, UsageError

INSTALL_SECONDS = 1800.0

# Only one run makes an environment at a time; the file `done` is written last.
_SCRIPT = """\
set -e
folder={folder}
mkdir -p "$folder"
exec 9> "$folder.lock"
flock 9
test ! -e "$folder/done" || exit 0
rm -rf "$folder"
{python} -m venv "$folder"
"$folder/bin/python" -m pip install --disable-pip-version-check -q {arguments}
touch "$folder/done"
"""


def make_environment(host: HostWithFiles, facts: HostFacts, spec: JobSpec, base: Path) -> str:
    """Make the environment of a job on a host; return the path of its Python.

    Args:
        host: Host that gets the environment.
        facts: Hardware and software of the host.
        spec: Job that will run there.
        base: Folder of the job file.

    Raises:
        UsageError: the requirements file cannot be read.
        CommandFailedError: pip failed.
    """
    if spec.software.environment == "existing":
        return spec.software.python
    wheel = build_own_wheel(facts.python[:2], facts.machine)
    folder = f"{facts.home}/envs/{_digest(spec, base, wheel, facts)}"
    check = f"test -e {shlex.quote(folder)}/done && echo yes || true"
    if host.run(check, what="looking for the environment").strip() != "yes":
        _install(host, facts, spec, base, wheel, folder)
    return f"{folder}/bin/python"


def installed_packages(host: HostWithFiles, python: str) -> dict[str, str]:
    """Return the version of each package in an environment, by its name in lower case.

    Args:
        host: Host with the environment.
        python: Path of its Python.
    """
    code = (
        "import importlib.metadata as m, json; print(json.dumps({d.metadata['Name'].lower():"
        " d.version for d in m.distributions()}))"
    )
    return json.loads(host.run(shlex.join([python, "-c", code]), what="looking at the packages"))


def check_frameworks(spec: JobSpec, packages: Mapping[str, str], host: str) -> None:
    """Refuse an environment whose frameworks have other versions than the job wants.

    Args:
        spec: Description of the job.
        packages: Versions of the packages by their names.
        host: Name of the host, for the message.

    Raises:
        ConfigError: a framework is missing, or has another version.
    """
    for name, version in spec.software.frameworks.items():
        has = packages.get(name.lower(), "")
        if not (has == version or has.startswith((f"{version}.", f"{version}+"))):
            raise ConfigError(
                f"{host} needs {name} {version} and has {has or 'none'}; change"
                " software.frameworks, or install it there"
            )


def _install(
    host: HostWithFiles, facts: HostFacts, spec: JobSpec, base: Path, wheel: Path, folder: str
) -> None:
    files = f"{folder}.files"
    host.run(f"mkdir -p {shlex.quote(files)}", what="making the environment")
    host.upload(wheel.parent, f"{files}/own")
    arguments = [f"{files}/own/{wheel.name}", *packages_of(spec)]
    requirements = _requirements(spec, base)
    if requirements:
        path = f"{files}/requirements.txt"
        host.run(f"cat > {shlex.quote(path)}", what="writing requirements", text=requirements)
        arguments += ["-r", path]
    if spec.software.wheels:
        host.upload(base / spec.software.wheels, f"{files}/wheels")
        arguments += ["--no-index", "--find-links", f"{files}/wheels"]
    elif spec.software.index:
        arguments += ["--index-url", spec.software.index]
    script = _SCRIPT.format(
        folder=shlex.quote(folder),
        python=shlex.quote(spec.software.python),
        arguments=shlex.join(arguments),
    )
    host.run(script, what="installing packages", seconds=INSTALL_SECONDS)


def packages_of(spec: JobSpec) -> list[str]:
    """Return the packages of a job, with the frameworks in the wanted versions."""
    frameworks = [f"{name}=={version}.*" for name, version in spec.software.frameworks.items()]
    return [*spec.software.packages, *frameworks]


def _requirements(spec: JobSpec, base: Path) -> str:
    if not spec.software.requirements:
        return ""
    path = base / spec.software.requirements
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"software.requirements is {str(path)!r}, which cannot be read: {error.strerror}"
        ) from error


def _digest(spec: JobSpec, base: Path, wheel: Path, facts: HostFacts) -> str:
    """Return the name of the environment: two jobs share one if they install the same."""
    parts = (
        spec.software.python,
        str(facts.python),
        *packages_of(spec),
        _requirements(spec, base),
        spec.software.index,
        spec.software.wheels,
        hashlib.sha256(wheel.read_bytes()).hexdigest(),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
