"""The preparation of one ssh host: code, environment, data and the user's set-up."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from slipstream.cluster.control.plan import RunPlan
from slipstream.cluster.engines.environment import (
    check_frameworks,
    installed_packages,
    make_environment,
)
from slipstream.cluster.engines.probe import HostFacts
from slipstream.cluster.engines.protocol import RunProgress
from slipstream.cluster.engines.this_host import HostWithFiles
from slipstream.cluster.head.storage.mounts import mounted_argv
from slipstream.cluster.spec.storage import check_places, storage_buckets, storage_mounts
from slipstream.errors import ConfigError

SETUP_SECONDS = 3600.0


def prepare_host(
    plan: RunPlan, host: HostWithFiles, facts: HostFacts, progress: RunProgress
) -> str:
    """Bring code, environment and data to a host; return the path of its Python.

    Args:
        plan: Run.
        host: Host to prepare.
        facts: Hardware and software of the host.
        progress: Listener for the stages.

    Raises:
        CommandFailedError: a command on the host failed.
        ConfigError, PeerError: the host cannot be used.
    """
    folder = f"{facts.home}/runs/{plan.run}"
    with progress.stage("files", host.name):
        host.run(f"umask 077; mkdir -p {shlex.quote(folder)}/code", what="making folders")
        _bring_code(plan, host, folder)
    with progress.stage("environment", host.name):
        python = make_environment(host, facts, plan.spec, plan.base)
        packages = installed_packages(host, python)
        check_frameworks(plan.spec, packages, host.name)
        progress.fact("packages", packages)
    if plan.spec.data:
        with progress.stage("data", host.name):
            bring_data(plan, host, folder, python)
    bring_storage(plan, host, f"{folder}/code", python, progress)
    try_container(plan, host, progress)
    if plan.spec.software.setup:
        with progress.stage("set-up", host.name):
            _run_setup(plan, host, folder, python)
    return python


def _bring_code(plan: RunPlan, host: HostWithFiles, folder: str) -> None:
    code = plan.spec.code
    if code.git:
        script = (
            f"cd {shlex.quote(folder)}/code && (test -d .git || git init -q) &&"
            f" git fetch -q --depth 1 {shlex.quote(code.git)} {shlex.quote(code.commit)} &&"
            " git checkout -q FETCH_HEAD"
        )
        host.run(script, what="fetching the repository", seconds=SETUP_SECONDS)
    else:
        host.upload(plan.code_folder, f"{folder}/code", code.exclude)


def bring_data(plan: RunPlan, host: HostWithFiles, folder: str, python: str) -> None:
    """Bring the data of a run to a host.

    Args:
        plan: Run.
        host: Host.
        folder: Absolute path of the run's folder on the host.
        python: Path of Python in an environment with Slipstream.

    Raises:
        CommandFailedError: the data cannot be copied.
        ConfigError: a file or folder of this machine does not exist.
    """
    for number, item in enumerate(plan.spec.data):
        target = f"{folder}/code/{item.path}"
        if "://" not in item.source:
            _upload_data(host, plan.base / item.source, f"{folder}/data/{number}", target)
            continue
        fetch = shlex.join(
            [python, "-m", "slipstream.cluster.head.storage.fetch", item.source, target]
        )
        host.run(fetch, what=f"fetching {item.source}", seconds=SETUP_SECONDS)


def _upload_data(host: HostWithFiles, source: Path, copy: str, target: str) -> None:
    """Bring a file or a folder of this machine to a folder below the code; other files there stay.

    The files come to a folder of their own first, since `upload` deletes what else is there, and
    then have a second name, in the target.
    """
    if not source.is_dir() and (source.is_symlink() or not source.is_file()):
        raise ConfigError(
            f"the data {source} is no file or folder of this machine; check data.source, which is"
            " relative to the job file, and name the file itself if it is a link"
        )
    host.run(f"mkdir -p {shlex.quote(copy)} {shlex.quote(target)}", what="making folders for data")
    if source.is_dir():
        host.upload(source, copy)
    else:
        host.upload(source.parent, copy, (f"+ /{_rsync_pattern(source.name)}", "*"))
    link = shlex.join(["rsync", "-a", f"--link-dest={copy}", f"{copy}/", f"{target}/"])
    host.run(link, what=f"placing {source}", seconds=SETUP_SECONDS)


def _rsync_pattern(name: str) -> str:
    """Return the pattern for one name; in those without wildcards, rsync takes `\\` as it is."""
    return re.sub(r"([*?[\\])", r"\\\1", name) if re.search(r"[*?[]", name) else name


def bring_storage(
    plan: RunPlan, host: HostWithFiles, cwd: str, python: str, progress: RunProgress
) -> None:
    """Bring the files of buckets to a host, and try to mount the storage there.

    Args:
        plan: Run.
        host: Host.
        cwd: Absolute path of the folder of the code on the host.
        python: Path of Python in an environment with Slipstream.
        progress: Listener for the stage.

    Raises:
        CommandFailedError: a bucket cannot be read, or storage cannot be mounted.
        ConfigError: two storages have one path.
    """
    if not plan.spec.storage:
        return
    check_places(plan.spec.storage, cwd)
    mounts = storage_mounts(plan.spec.storage, cwd)
    access = json.dumps({**plan.spec.env, **plan.secret_variables})
    with progress.stage("storage", host.name):
        for bucket in storage_buckets(plan.spec.storage, cwd):
            bring = [
                python,
                "-m",
                "slipstream.cluster.head.storage.buckets",
                bucket.url,
                bucket.folder,
            ]
            what = f"bringing the bucket {bucket.name}"
            host.run(shlex.join(bring), what=what, text=access, seconds=SETUP_SECONDS)
        if mounts:
            attempt = mounted_argv(python, mounts, ["true"])
            host.run(shlex.join(attempt), what="mounting storage", seconds=SETUP_SECONDS)


def try_container(plan: RunPlan, host: HostWithFiles, progress: RunProgress) -> None:
    """Bring the container image of a job to a host, and try it.

    Args:
        plan: Run.
        host: Host.
        progress: Listener for the stage.

    Raises:
        CommandFailedError: the host has no runtime for containers, the image cannot be had, or its
            Python has no Slipstream.
    """
    container = plan.spec.container
    if not container.image:
        return
    image, names = shlex.quote(container.image), container.runtime or "podman docker"
    options = shlex.join([*container.options, f"--entrypoint={container.python}"])
    script = (
        f"for name in {names}; do runtime=$(command -v $name) && break; done;"
        f' test -n "$runtime" || {{ echo "container.image needs one of: {names}" >&2; exit 1; }};'
        f' "$runtime" image inspect {image} > /dev/null 2>&1 || "$runtime" pull -q {image} &&'
        f' "$runtime" run --rm --network=host {options} {image} -c "import slipstream.cluster"'
    )
    with progress.stage("image", host.name):
        what = f"trying the image {container.image}"
        host.run(script, what=what, seconds=SETUP_SECONDS)


def _run_setup(plan: RunPlan, host: HostWithFiles, folder: str, python: str) -> None:
    quoted = shlex.quote(folder)
    script = (
        f"test -e {quoted}/setup.done && exit 0; cd {quoted}/code &&"
        f" PATH={shlex.quote(str(Path(python).parent))}:$PATH sh -e -s"
        f" && touch {quoted}/setup.done"
    )
    setup = plan.spec.software.setup
    host.run(script, what="running software.setup", text=setup, seconds=SETUP_SECONDS)
