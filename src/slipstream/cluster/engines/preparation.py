"""The preparation of one ssh host: code, environment, data and the user's set-up."""

from __future__ import annotations

import json
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
from slipstream.cluster.spec.storage import storage_buckets, storage_mounts

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
            _bring_data(plan, host, folder, python)
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


def _bring_data(plan: RunPlan, host: HostWithFiles, folder: str, python: str) -> None:
    for item in plan.spec.data:
        target = f"{folder}/code/{item.path}"
        if "://" not in item.source:
            host.run(f"mkdir -p {shlex.quote(target)}", what="making a folder for data")
            host.upload(plan.base / item.source, target)
            continue
        fetch = shlex.join(
            [python, "-m", "slipstream.cluster.head.storage.fetch", item.source, target]
        )
        host.run(fetch, what=f"fetching {item.source}", seconds=SETUP_SECONDS)


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
    """
    if not plan.spec.storage:
        return
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
