"""The engine of Ray: a job of a cluster that exists, whose driver has the head and the journal."""

from __future__ import annotations

import hashlib
import io
import json
import secrets
import shlex
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from slipstream.cluster.control.estimate import Estimate
from slipstream.cluster.control.plan import RunPlan
from slipstream.cluster.engines.code_bundle import bundle_files
from slipstream.cluster.engines.outputs import ResumedStream, unmatched, unpack_outputs
from slipstream.cluster.engines.protocol import HeadState, JournalPart, RunProgress
from slipstream.cluster.engines.ray.jobs import RayJobs
from slipstream.cluster.engines.remarks import (
    CANCELLED_CODE,
    Remarks,
    cancelled_entry,
    end_entry,
    is_submitted,
    mark_cancelled,
    mark_submitted,
)
from slipstream.cluster.head.allocation import TAKEN_CODE
from slipstream.cluster.head.outputs import PART_BYTES, index_name, part_name
from slipstream.cluster.head.placement import FILE_NAME
from slipstream.cluster.spec import JobSpec
from slipstream.errors import PeerError, UsageError

POLL_SECONDS = 0.5
# The whole log is read each time, so a long one is read less often.
PATIENCE = 10.0
CLEAN_SECONDS = 30.0
MAX_PACKAGE_BYTES = 250 << 20  # Ray takes packages of less than 256 MB
RESOURCES = "resources.json"  # as in head.in_ray, which needs Ray to be imported
_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")


class RayEngine:
    """The engine of Ray.

    Args:
        address: URL of the dashboard; "" for that of the environment.
    """

    name = "ray"

    def __init__(self, address: str) -> None:
        self._jobs = RayJobs(address)
        self._remarks = Remarks()

    def check(self, plan: RunPlan) -> None:
        """Refuse what the nodes of Ray cannot do."""
        spec = plan.spec
        refused = {
            "software.wheels": (spec.software.wheels, "install them on the nodes"),
            "software.frameworks": (spec.software.frameworks, "name them in software.packages"),
            "software.cuda": (spec.software.cuda, "install it on the nodes"),
            "software.cudnn": (spec.software.cudnn, "install it on the nodes"),
            "resources.gpu": (spec.resources.gpu, "set resources.accelerators to Ray's name of it"),
            "resources.disk": (spec.resources.disk, "Ray does not know the disks of nodes"),
            "data": (
                [item.source for item in spec.data if "://" not in item.source],
                "the nodes have no files of this machine; name a URL",
            ),
        }
        for name, (value, remedy) in refused.items():
            if value:
                raise UsageError(f"{name} is set, but the engine is ray; {remedy}")

    def estimate(self, spec: JobSpec) -> Estimate | None:
        """Return None: it creates no machines."""
        del spec

    def prepare(self, plan: RunPlan, progress: RunProgress) -> None:
        """Ask the job server for the job, to know that it answers."""
        plan.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with progress.stage("look"):
            self._jobs.get(plan.run)

    def submit(self, plan: RunPlan) -> None:
        """Start the job, unless it runs or has a result; one that was taken away starts again."""
        job = self._jobs.get(plan.run)
        if job is not None and not self._is_taken(job):
            return
        mark_submitted(plan)
        if job is not None:
            self._jobs.delete(plan.run)
        package = _package(plan)
        name = f"_ray_pkg_{hashlib.sha1(package, usedforsecurity=False).hexdigest()}.zip"
        runtime_env: dict[str, Any] = {"working_dir": self._jobs.upload(name, package)}
        if packages := _packages(plan):
            runtime_env["pip"] = packages
        python = "python" if packages else plan.spec.software.python
        entrypoint = shlex.join([python, "-m", "slipstream.cluster.head.in_ray"])
        self._jobs.submit(plan.run, entrypoint, runtime_env)

    # ---- while it runs ----

    def read_journal(self, plan: RunPlan, position: str, seconds: float) -> JournalPart:
        """Return new lines of the driver's log, or how a job without a result has ended.

        A position is the time at which the job has started, and the number of its characters.
        """
        until = time.monotonic() + seconds
        while True:
            began_at = time.monotonic()
            job = self._jobs.get(plan.run)
            if job is None:
                return JournalPart(text=cancelled_entry(plan), position=position)
            start, _, read = position.rpartition("@")
            offset = int(read) if start == str(job.get("start_time")) else 0
            log = self._jobs.read_log(plan.run)[offset:]
            text = log[: log.rfind("\n") + 1]
            after = f"{job.get('start_time')}@{offset + len(text)}" if text else position
            text = text or self._look(plan, job, log)
            if text or time.monotonic() >= until:
                return JournalPart(text=text, position=after)
            time.sleep(max(POLL_SECONDS, PATIENCE * (time.monotonic() - began_at)))

    def _look(self, plan: RunPlan, job: Mapping[str, Any], rest: str) -> str:
        """Return an entry about a job that says nothing, if there is news, or ""."""
        status, message = str(job["status"]), str(job.get("message") or "")
        if cancelled_entry(plan) and status in _ENDED:
            return cancelled_entry(plan)
        if status == "STOPPED":
            return end_entry("cancelled", CANCELLED_CODE, f"the job of Ray was stopped: {message}")
        if status == "PENDING":
            return self._remarks.entry(f"the job of Ray waits: {message}")
        if status == "RUNNING" or self._is_taken(job):
            return ""
        return end_entry("failed", 1, f"the job of Ray is {status}: {message} {rest}".strip())

    def _is_taken(self, job: Mapping[str, Any]) -> bool:
        """Return whether a job has ended because Ray lost its driver, or was told to end it."""
        return job["status"] == "FAILED" and job.get("driver_exit_code") in (None, TAKEN_CODE)

    def head_state(self, plan: RunPlan) -> HeadState:
        """Return whether the job waits, runs, or has ended with a result."""
        try:
            job = self._jobs.get(plan.run)
        except PeerError:
            return "unreachable"
        if job is None or self._is_taken(job):
            return "running" if cancelled_entry(plan) else "absent"
        return "running"

    def restart_head(
        self, plan: RunPlan, progress: RunProgress, *, host_is_lost: bool
    ) -> Sequence[str]:
        """Start the job again."""
        del progress, host_is_lost
        self.submit(plan)
        return ()

    def replace_hosts(
        self, plan: RunPlan, lost: Sequence[str], progress: RunProgress
    ) -> Sequence[str]:
        """Return no host: Ray starts the host daemon of a lost node on another one."""
        del plan, lost, progress
        return ()

    # ---- the end ----

    def cancel(self, plan: RunPlan) -> None:
        """Stop the job."""
        mark_cancelled(plan)
        self._jobs.stop(plan.run)

    def fetch(self, plan: RunPlan, patterns: Sequence[str], folder: Path) -> Sequence[str]:
        """Read the outputs from the node of the driver, which has brought them there and waits."""
        node, size = self._await_outputs(plan)

        def open_at(position: int) -> Iterator[bytes]:
            for number in range(position // PART_BYTES, -(-size // PART_BYTES)):
                length = min(PART_BYTES, size - number * PART_BYTES)
                left = max(position - number * PART_BYTES, 0)
                name = part_name(plan.run, number)
                yield from _exactly(self._jobs.read_file(node, name), left, length, name)

        return unmatched(patterns, unpack_outputs(ResumedStream(open_at), folder))

    def _await_outputs(self, plan: RunPlan) -> tuple[str, int]:
        """Wait until the driver has all outputs; return its node and the size of the archive.

        Raises:
            PeerError: the driver has ended before, or could not bring them.
        """
        while True:
            job = self._jobs.get(plan.run)
            node = str((job or {}).get("driver_node_id") or "")
            index = b"".join(self._jobs.read_file(node, index_name(plan.run))) if node else b""
            if index:
                facts = json.loads(index)
                if facts["error"]:
                    raise PeerError(f"the driver has no outputs: {facts['error']}")
                return node, int(facts["bytes"])
            if job is None or job["status"] in _ENDED:
                raise PeerError(
                    f"Ray's job {plan.run} has ended, and the outputs are gone; outputs_wait is"
                    f" {plan.spec.outputs_wait:g} s"
                )
            time.sleep(POLL_SECONDS)

    def release(self, plan: RunPlan) -> None:
        """Stop a job that still runs, and let Ray forget it."""
        if not is_submitted(plan):
            return
        until = time.monotonic() + CLEAN_SECONDS
        self._jobs.stop(plan.run)
        while not self._jobs.delete(plan.run):
            if time.monotonic() > until:
                raise PeerError(
                    f"Ray's job {plan.run} does not end; call `ray job stop {plan.run}`"
                )
            time.sleep(POLL_SECONDS)

    def shell(self, plan: RunPlan, host: str) -> list[str]:
        """Refuse: Ray gives no shell."""
        raise UsageError(f"{plan.run} runs in Ray, which gives no shell on {host or 'its nodes'}")

    def path_on_host(self, plan: RunPlan, path: str) -> str:
        """Refuse: Ray copies no files."""
        raise UsageError(f"{plan.run} runs in Ray, which copies no files such as {path}")


def _exactly(content: Iterator[bytes], skip: int, length: int, name: str) -> Iterator[bytes]:
    """Yield a file of a known length without its first bytes.

    Raises:
        PeerError: it is shorter.
    """
    position = 0
    for chunk in content:
        if position + len(chunk) > skip:
            yield chunk[max(skip - position, 0) :]
        position += len(chunk)
    if position < length:
        raise PeerError(f"{name} has {position} of {length} bytes")


def _packages(plan: RunPlan) -> list[str]:
    software = plan.spec.software
    listed: list[str] = list(software.packages)
    if software.requirements:
        path = plan.base / software.requirements
        try:
            listed += path.read_text(encoding="utf-8").split("\n")
        except OSError as error:
            raise UsageError(
                f"software.requirements is {str(path)!r}, which cannot be read: {error.strerror}"
            ) from error
    return [line.strip() for line in listed if line.strip() and not line.startswith("#")]


def _package(plan: RunPlan) -> bytes:
    """Return the working directory of the driver: a zip archive with the files of the run."""
    placement = plan.placement(cwd="", hosts=(), python=plan.spec.software.python)
    files = {
        FILE_NAME: placement.as_text().encode(),
        RESOURCES: json.dumps(_bundle(plan)).encode(),
        # Each package has another name, so that no job uses files that another one has deleted.
        "nonce": secrets.token_bytes(16),
        **bundle_files(plan),
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    if packed.tell() > MAX_PACKAGE_BYTES:
        raise UsageError(
            f"the code in {plan.code_folder} has {packed.tell() / 2**20:.0f} MiB when it is packed,"
            " and Ray takes 250; name what is not needed in code.exclude, or set code.git"
        )
    return packed.getvalue()


def _bundle(plan: RunPlan) -> dict[str, float]:
    """Return the resources of each host in Ray's words."""
    resources = plan.spec.resources
    ranks = plan.spec.processes if isinstance(plan.spec.processes, int) else 1
    wanted = {
        "CPU": float(resources.cpus or ranks),
        "GPU": float(resources.gpus),
        "memory": (resources.memory or 0.0) * 2**30,
        **{name: float(count) for name, count in resources.accelerators.items()},
    }
    return {name: count for name, count in wanted.items() if count}
