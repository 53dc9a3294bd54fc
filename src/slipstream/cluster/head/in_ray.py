"""`python -m slipstream.cluster.head.in_ray`: run a run in a job of Ray, whose driver this is.

The working directory has the files of the run. The driver runs the head, and writes the journal to
its output. On each node of a placement group, a task runs the host daemon. When a node is lost, Ray
moves its bundle, and a task starts there. At the end, the driver brings the outputs of the job into
the folder of Ray's logs on its node, from which Ray's dashboard gives them to the client, and waits
until the client has them. The exit code is that of the job, or TAKEN_CODE if it is
taken away.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from slipstream.cluster.head.allocation import TAKEN_CODE, run_lent_head, with_head_here
from slipstream.cluster.head.bundle import ARCHIVE, CODE, SOURCES, unpack_code
from slipstream.cluster.head.daemon import HostDaemon
from slipstream.cluster.head.journal import Journal
from slipstream.cluster.head.outputs import (
    archive_chunks,
    remove_parts,
    wait_for_client,
    write_index,
    write_parts,
)
from slipstream.cluster.head.placement import FILE_NAME, RunPlacement, parse_placement
from slipstream.errors import ConfigError, PeerError, SlipstreamError

# Ray's own types are partly unknown.
ray: Any = import_module("ray")
groups: Any = import_module("ray.util.placement_group")
strategies: Any = import_module("ray.util.scheduling_strategies")

BUNDLE_RESOURCES = "resources.json"
TASK_END_SECONDS = 10.0
LOOK_SECONDS = 2.0
MAX_FAILURES = 3  # of the preparation of one node
MAX_CHUNKS = 8  # of the outputs, which are on their way from a node to the driver
GIVE_SECONDS = 60.0  # for the next chunk; a node that is silent for longer is lost


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

    The folder of a run with outputs stays; `give_outputs` deletes it.

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
        if not placement.outputs:
            shutil.rmtree(folder, ignore_errors=True)


def give_outputs(placement: RunPlacement, host: str) -> Iterator[bytes]:
    """Yield the outputs as an archive if this is the host with them; delete the run's folder here.

    Args:
        placement: Placement of the run.
        host: Name of the host with the outputs.
    """
    folder = folder_of(placement.run)
    try:
        if socket.gethostname() == host:
            yield from archive_chunks(folder / CODE, placement.outputs)
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
    logs = Path("/proc/self/fd/1").readlink().parent  # Ray writes what the driver prints there
    code = {name: content for name, content in files.items() if name != FILE_NAME}
    group, num_hosts = _reserve(given, bundle, journal)
    folder = Path(tempfile.mkdtemp(prefix=f"slipstream-head-{given.run}-"))
    cwd = str(Path(tempfile.gettempdir()) / f"slipstream-{given.run}" / CODE)
    placement = replace(
        with_head_here(given, ()), python=sys.executable, cwd=cwd, max_hosts=num_hosts
    )
    tasks = HostTasks(
        group,
        num_hosts,
        given.min_hosts,
        lambda index: _start(index, group, bundle, code, placement),
    )
    try:
        code = run_lent_head(placement, folder, journal, lambda: tasks.problem)
        if given.outputs:
            tasks.close()
            _gather_outputs(group, num_hosts, placement, journal.first_host, logs)
    finally:
        tasks.close()
        groups.remove_placement_group(group)
        shutil.rmtree(folder, ignore_errors=True)
    if given.outputs:
        if code != TAKEN_CODE:
            wait_for_client(given.outputs_wait_seconds)
        remove_parts(logs, given.run)
    return code


def _gather_outputs(
    group: Any, num_hosts: int, placement: RunPlacement, host: str, logs: Path
) -> None:
    """Bring the outputs of a host to files in the folder of the logs, and clear all hosts."""
    options = {"num_returns": "streaming", "_generator_backpressure_num_objects": MAX_CHUNKS}
    given = [
        ray.remote(num_cpus=0, max_retries=0, **options, **_in_bundle(group, index))(
            give_outputs
        ).remote(placement, host)
        for index in range(num_hosts)
    ]
    size, problem = 0, f"the host {host} with the outputs does not answer"
    try:
        size = write_parts(
            (chunk for chunks in given for chunk in _received(chunks)), logs, placement.run
        )
    except (OSError, ray.exceptions.RayError) as error:
        problem = str(error).strip().splitlines()[-1]
        size = 0
    write_index(logs, placement.run, size, "" if size else problem)


def _received(chunks: Any) -> Iterator[bytes]:
    """Yield the values of a task that yields some, until it has ended or is lost."""
    while ray.wait([chunks], timeout=GIVE_SECONDS)[0]:
        try:
            yield ray.get(next(chunks))
        except StopIteration:
            return


class HostTasks:
    """The tasks that run the host daemons, which are started again where they are lost.

    Ray itself notices after minutes that a task was on a node without power; but it places the
    bundle of such a node anew within seconds. A node that cannot be prepared is given up after some
    failures. If too few nodes are left, this process gets SIGTERM.

    Args:
        group: Placement group, which is ready.
        count: Number of its bundles.
        min_hosts: Smallest number of nodes with which the job starts.
        start: Function that starts the task of a bundle.

    Attributes:
        problem: Reason for which too few nodes are left, or "".
    """

    def __init__(self, group: Any, count: int, min_hosts: int, start: Callable[[int], Any]) -> None:
        self.problem = ""
        self._group = group
        self._start = start
        self._min_hosts = min_hosts
        self._failures = Counter[int]()
        self._nodes = self._places()
        self._tasks = {index: start(index) for index in range(count)}
        self._is_over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="tasks")
        self._watcher.start()

    def close(self) -> None:
        """Wait for the ends of the tasks, for some seconds."""
        self._is_over.set()
        self._watcher.join()
        tasks = list(self._tasks.values())
        ray.wait(tasks, num_returns=len(tasks), timeout=TASK_END_SECONDS)

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            nodes = self._places()
            for index, task in self._tasks.items():
                has_moved = nodes.get(index) != self._nodes.get(index)
                if nodes.get(index) and (has_moved or self._must_start_again(index, task)):
                    self._nodes[index] = nodes[index]
                    self._tasks[index] = self._start(index)

    def _must_start_again(self, index: int, task: Any) -> bool:
        """Return whether a task has ended, but not for good."""
        if self._failures[index] >= MAX_FAILURES or not ray.wait([task], timeout=0)[0]:
            return False
        try:
            return ray.get(task) != 0
        except (SlipstreamError, OSError) as error:
            self._failures[index] += 1
            self._give_up(str(error).strip().splitlines()[-1])
            return self._failures[index] < MAX_FAILURES
        except ray.exceptions.RayError:
            return True

    def _give_up(self, reason: str) -> None:
        """End the run if too few nodes are left, of which the last one has failed for a reason."""
        broken = sum(count >= MAX_FAILURES for count in self._failures.values())
        if not self.problem and len(self._tasks) - broken < self._min_hosts:
            self.problem = f"a node of Ray cannot be prepared: {reason}"
            os.kill(os.getpid(), signal.SIGTERM)

    def _places(self) -> dict[int, str]:
        """Return the identifier of the node of each bundle."""
        table = groups.placement_group_table(self._group)
        return {int(index): str(node) for index, node in table["bundles_to_node_id"].items()}


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
    """Start the task of one host."""
    others = {name: count for name, count in bundle.items() if name not in ("CPU", "GPU", "memory")}
    options = {
        "num_cpus": bundle.get("CPU", 0),
        "num_gpus": bundle.get("GPU", 0),
        "memory": bundle.get("memory"),
        "resources": others,
        "max_retries": 0,
        **_in_bundle(group, index),
    }
    return ray.remote(**options)(serve_host).remote(code, placement)


def _in_bundle(group: Any, index: int) -> dict[str, Any]:
    """Return the option with which a task runs on the node of a bundle."""
    strategy = strategies.PlacementGroupSchedulingStrategy(
        placement_group=group, placement_group_bundle_index=index
    )
    return {"scheduling_strategy": strategy}


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
