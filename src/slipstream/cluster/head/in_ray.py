"""`python -m slipstream.cluster.head.in_ray`: run a run in a job of Ray, whose driver this is.

The working directory has the files of the run. The driver runs the head, and writes the journal to
its output. On each node of a placement group, a task runs the host daemon; when a node is lost, Ray
starts the task on another one. The exit code is that of the job, or TAKEN_CODE if Ray ends it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from slipstream.cluster.head.allocation import run_lent_head, with_head_here
from slipstream.cluster.head.bundle import ARCHIVE, CODE, SOURCES, unpack_code
from slipstream.cluster.head.daemon import HostDaemon
from slipstream.cluster.head.journal import Journal
from slipstream.cluster.head.placement import FILE_NAME, RunPlacement, parse_placement
from slipstream.errors import ConfigError, PeerError, SlipstreamError

# Ray's own types are partly unknown.
ray: Any = import_module("ray")
groups: Any = import_module("ray.util.placement_group")
strategies: Any = import_module("ray.util.scheduling_strategies")

BUNDLE_RESOURCES = "resources.json"
TASK_END_SECONDS = 10.0


def take_files() -> dict[str, bytes]:
    """Return the files of the run in the working directory, and delete them there.

    Ray unpacks the working directory so that everybody on the node can read it.
    """
    files: dict[str, bytes] = {}
    for name in (FILE_NAME, SOURCES, ARCHIVE, BUNDLE_RESOURCES):
        path = Path(name)
        if path.exists():
            files[name] = path.read_bytes()
            path.unlink()
    return files


def folder_of(run: str) -> Path:
    """Return the folder of a run on every node, which only its owner can read.

    Raises:
        ConfigError: it belongs to somebody else.
    """
    folder = Path(tempfile.gettempdir()) / f"slipstream-{run}"
    folder.mkdir(mode=0o700, exist_ok=True)
    state = folder.stat()
    if state.st_uid != os.getuid() or state.st_mode & 0o077:
        raise ConfigError(f"{folder} belongs to somebody else; remove it")
    return folder


def serve_host(files: Mapping[str, bytes], placement: RunPlacement) -> int:
    """Run the host daemon of a run on this node until the run is over; return its exit code.

    Args:
        files: Files with the code.
        placement: Placement of the run.
    """
    take_files()
    folder = folder_of(placement.run)
    try:
        placement.write(folder)
        unpack_code(files, folder / CODE)
        return asyncio.run(HostDaemon(folder, socket.gethostname()).run())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_in_ray(files: Mapping[str, bytes], bundle: Mapping[str, float], journal: Journal) -> int:
    """Run a run on nodes of this Ray; return its exit code.

    Args:
        files: Files of the run.
        bundle: Resources of each host, in Ray's words.
        journal: Journal of the run.
    """
    given = parse_placement(files[FILE_NAME].decode())
    code = {name: content for name, content in files.items() if name != FILE_NAME}
    group, num_hosts = _reserve(given, bundle, journal)
    folder = Path(tempfile.mkdtemp(prefix=f"slipstream-head-{given.run}-"))
    cwd = str(Path(tempfile.gettempdir()) / f"slipstream-{given.run}" / CODE)
    placement = replace(
        with_head_here(given, ()), python=sys.executable, cwd=cwd, max_hosts=num_hosts
    )
    tasks = [_start(index, group, bundle, code, placement) for index in range(num_hosts)]
    try:
        return run_lent_head(placement, folder, journal)
    finally:
        ray.wait(tasks, num_returns=num_hosts, timeout=TASK_END_SECONDS)
        groups.remove_placement_group(group)
        shutil.rmtree(folder, ignore_errors=True)


def _reserve(
    placement: RunPlacement, bundle: Mapping[str, float], journal: Journal
) -> tuple[Any, int]:
    """Return a placement group with a bundle on each of as many nodes as there are."""
    wanted = placement.max_hosts
    journal.state("starting", f"asks Ray for {wanted} nodes with {dict(bundle)}")
    until = time.monotonic() + placement.lost_seconds
    patience = min(placement.host_wait_seconds, placement.lost_seconds)
    while True:
        group = groups.placement_group([dict(bundle)] * wanted, strategy="STRICT_SPREAD")
        if group.wait(patience):
            return group, wanted
        groups.remove_placement_group(group)
        alive = sum(bool(node["Alive"]) for node in ray.nodes())
        wanted = max(min(wanted - 1, alive), placement.min_hosts)
        if time.monotonic() >= until:
            raise PeerError(
                f"Ray has no {placement.min_hosts} nodes with {dict(bundle)} free within"
                f" {placement.lost_seconds:g} s; it has {alive} nodes"
            )


def _start(
    index: int, group: Any, bundle: Mapping[str, float], code: Any, placement: RunPlacement
) -> Any:
    """Start the task of one host, again and again if its node is lost."""
    others = {name: count for name, count in bundle.items() if name not in ("CPU", "GPU", "memory")}
    options = {
        "num_cpus": bundle.get("CPU", 0),
        "num_gpus": bundle.get("GPU", 0),
        "memory": bundle.get("memory"),
        "resources": others,
        "max_retries": -1,
        "scheduling_strategy": strategies.PlacementGroupSchedulingStrategy(
            placement_group=group, placement_group_bundle_index=index
        ),
    }
    return ray.remote(**options)(serve_host).remote(code, placement)


def main() -> int:
    """Run the run of the working directory."""
    files = take_files()
    journal = Journal(None)
    ray.init(log_to_driver=False, logging_level="ERROR")
    try:
        return run_in_ray(files, json.loads(files[BUNDLE_RESOURCES]), journal)
    except SlipstreamError as error:
        journal.state("failed", str(error), exit_code=1)
        return 1


if __name__ == "__main__":
    sys.exit(main())
