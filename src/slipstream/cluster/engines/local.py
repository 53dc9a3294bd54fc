"""The engine of this host: the head is a process of its own, which outlives the client."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from slipstream.cluster.control.plan import RunPlan
from slipstream.cluster.engines.environment import check_frameworks, installed_packages
from slipstream.cluster.engines.preparation import bring_storage
from slipstream.cluster.engines.probe import probe, shortcomings
from slipstream.cluster.engines.protocol import HeadState, JournalPart, RunProgress
from slipstream.cluster.engines.this_host import ThisHost
from slipstream.cluster.head.placement import FILE_NAME, JOURNAL
from slipstream.cluster.head.storage.mounts import mounted_argv
from slipstream.cluster.head.storage.output_names import find_outputs
from slipstream.cluster.outside import outside
from slipstream.cluster.spec import JobSpec
from slipstream.cluster.spec.parts import HostResources, HostSoftware
from slipstream.cluster.spec.storage import storage_mounts
from slipstream.errors import ConfigError, UsageError
from slipstream.settings import absolute_module_path

LOOK_SECONDS = 0.02


class LocalEngine:
    """The engine of this host; a run has its files where they are."""

    name = "local"

    def __init__(self) -> None:
        self._head: subprocess.Popen[bytes] | None = None

    def check(self, plan: RunPlan) -> None:
        """Refuse several hosts, and software that only other hosts get."""
        if plan.spec.hosts.max > 1:
            raise UsageError(
                f"hosts is {plan.spec.hosts.max}, but the engine is local; allowed: 1, or another"
                " engine, such as --on ssh"
            )
        spec = plan.spec
        others = {
            "code.git": spec.code.git,
            "data": spec.data,
            "software.packages": spec.software.packages,
            "software.requirements": spec.software.requirements,
            "software.index": spec.software.index,
            "software.wheels": spec.software.wheels,
            "software.setup": spec.software.setup,
            "ssh.hosts": spec.ssh.hosts,
        }
        for name, value in others.items():
            if value:
                raise UsageError(
                    f"{name} is set, but the engine is local, which uses this host as it is; leave"
                    " it out, or choose another engine with --on"
                )

    def estimate(self, spec: JobSpec) -> None:
        """Return None: this host costs nothing."""
        del spec

    def prepare(self, plan: RunPlan, progress: RunProgress) -> None:
        """Make the folder of the run."""
        plan.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._look(plan, progress)
        bring_storage(plan, ThisHost(), str(plan.code_folder), sys.executable, progress)

    def _look(self, plan: RunPlan, progress: RunProgress) -> None:
        """Refuse a job for which this host lacks something."""
        host, wanted = ThisHost(), plan.spec.software
        if wanted.frameworks:
            check_frameworks(plan.spec, installed_packages(host, sys.executable), host.name)
        software = HostSoftware(python=sys.executable, cuda=wanted.cuda, cudnn=wanted.cudnn)
        spec = plan.spec.model_copy(update={"software": software})
        if spec.resources == HostResources() and not (wanted.cuda or wanted.cudnn):
            return
        with progress.stage("look"):
            lacks = shortcomings(probe(host, spec, str(plan.home)), spec)
        if lacks:
            raise ConfigError(f"this host lacks: {'; '.join(lacks)}")

    def submit(self, plan: RunPlan) -> None:
        """Start the head, unless it runs or has run."""
        if self.head_state(plan) in ("running", "ended"):
            return
        placement = plan.placement(
            cwd=str(plan.code_folder), hosts=("localhost",), python=sys.executable
        )
        placement.write(plan.folder)
        head = [sys.executable, "-m", "slipstream.cluster.head", str(plan.folder)]
        mounts = storage_mounts(plan.spec.storage, str(plan.code_folder))
        with outside("local start"), (plan.folder / "head.log").open("ab") as log:
            self._head = subprocess.Popen(
                mounted_argv(sys.executable, mounts, head),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=absolute_module_path(os.environ),
                start_new_session=True,
            )
        while not self._holds_lock(plan) and self._head.poll() is None:
            time.sleep(LOOK_SECONDS)

    def read_journal(self, plan: RunPlan, position: str, seconds: float) -> JournalPart:
        """Return new complete lines of the journal file."""
        path = plan.folder / JOURNAL
        offset = int(position or 0)
        until = time.monotonic() + seconds
        while True:
            data = b""
            if path.exists():
                with path.open("rb") as file:
                    file.seek(offset)
                    data = file.read()
            data = data[: data.rfind(b"\n") + 1]
            if data or time.monotonic() >= until:
                return JournalPart(
                    text=data.decode(errors="replace"), position=str(offset + len(data))
                )
            time.sleep(LOOK_SECONDS)

    def head_state(self, plan: RunPlan) -> HeadState:
        """Return whether the head holds the lock of its folder."""
        if self._holds_lock(plan):
            return "running"
        return "ended" if (plan.folder / "ended").exists() else "absent"

    def cancel(self, plan: RunPlan) -> None:
        """Send SIGTERM to the head."""
        if self._holds_lock(plan):
            with outside("local signal"):
                os.kill(int((plan.folder / "head.lock").read_text()), signal.SIGTERM)

    def fetch(self, plan: RunPlan, patterns: Sequence[str], folder: Path) -> Sequence[str]:
        """Look only: the outputs are on this host already."""
        del folder
        return find_outputs(plan.code_folder, patterns).unmatched

    def release(self, plan: RunPlan) -> None:
        """Kill a head that still runs, and delete the secrets."""
        self.cancel(plan)
        while self._holds_lock(plan):
            time.sleep(LOOK_SECONDS)
        if self._head is not None:
            self._head.wait()
        (plan.folder / FILE_NAME).unlink(missing_ok=True)

    def restart_head(
        self, plan: RunPlan, progress: RunProgress, *, host_is_lost: bool
    ) -> Sequence[str]:
        """Start the head again."""
        del progress, host_is_lost
        self.submit(plan)
        return ()

    def replace_hosts(
        self, plan: RunPlan, lost: Sequence[str], progress: RunProgress
    ) -> Sequence[str]:
        """Return no host: this host cannot be replaced."""
        del plan, lost, progress
        return ()

    def shell(self, plan: RunPlan, host: str) -> list[str]:
        """Refuse: this host has a shell already."""
        raise UsageError(f"{plan.run} runs on this host, in {plan.code_folder}")

    def path_on_host(self, plan: RunPlan, path: str) -> str:
        """Return the path on this host."""
        return str(plan.code_folder / path)

    def _holds_lock(self, plan: RunPlan) -> bool:
        path = plan.folder / "head.lock"
        if not path.exists():
            return False
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False
