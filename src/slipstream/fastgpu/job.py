"""FastGPU's job: the machines of one group, on which the same is done at the same time."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from slipstream.cluster.groups.machine_group import NUM_THREADS, MachineGroup
from slipstream.fastgpu.task import FastGpuTask

LOGS = "/fastgpu/runs"

_FOLDER = """\
set -e
folder={root}/{name}
number=0
until mkdir "$folder" 2> /dev/null; do
  number=$((number + 1)); test $number -lt 1000
  folder={root}/{name}.$(printf %02d $number)
done
echo "$folder"
"""

T = TypeVar("T")


class FastGpuJob:
    """The machines of one name.

    Args:
        group: Group of the machines, which run.
        tasks: Machines.

    Attributes:
        name: Name of the group.
        tasks: Machines in the order of their numbers.
    """

    def __init__(self, group: MachineGroup, tasks: Sequence[FastGpuTask]) -> None:
        self.name = group.name
        self.tasks = list(tasks)
        self._group = group
        self._logdir = ""

    @property
    def logdir(self) -> str:
        """Folder for logs and TensorBoard's files, new for each script, on all machines."""
        if not self._logdir:
            chief = self.tasks[0]
            script = _FOLDER.format(root=LOGS, name=shlex.quote(chief.run_name))
            host = self._group.host(chief.name)
            self._logdir = host.run(script, what="making the folder for logs").strip()
            make = f"mkdir -p {shlex.quote(self._logdir)}"
            self._group.on_all(lambda host: host.run(make, what="making the folder for logs"))
        return self._logdir

    def run(self, cmd: str | Sequence[str], **options: bool | float | None) -> list[str | int]:
        """Run a command on all machines at the same time.

        Args:
            cmd: Lines for bash.
            options: Options of `FastGpuTask.run`, such as `non_blocking`.

        Returns:
            What `FastGpuTask.run` returns, for each machine.
        """
        return self._on_all(lambda task: task.run(cmd, **options))  # pyright: ignore[reportArgumentType]

    def run_with_output(self, cmd: str, ignore_errors: bool = False) -> list[tuple[str, str]]:
        """Run a command on all machines; return the standard output and error of each."""
        return self._on_all(lambda task: task.run_with_output(cmd, ignore_errors=ignore_errors))

    def join(self, ignore_errors: bool = False) -> list[int]:
        """Wait for the last command of each machine; return the exit codes."""
        return self._on_all(lambda task: task.join(ignore_errors))

    def upload(self, local_fn: str, remote_fn: str = "", dont_overwrite: bool = False) -> None:
        """Copy a file or a folder to all machines; see `FastGpuTask.upload`."""
        self._on_all(lambda task: task.upload(local_fn, remote_fn, dont_overwrite))

    def rsync(self, local_fn: str, remote_fn: str = "", exclude_git: bool = False) -> None:
        """Copy a folder to all machines; see `FastGpuTask.rsync`."""
        self._on_all(lambda task: task.rsync(local_fn, remote_fn, exclude_git))

    def download(self, remote_fn: str, local_fn: str = "") -> None:
        """Copy a file or a folder from the first machine; see `FastGpuTask.download`."""
        self.tasks[0].download(remote_fn, local_fn)

    def exists(self, remote_fn: str) -> bool:
        """Return whether all machines have a file or folder."""
        return all(self._on_all(lambda task: task.exists(remote_fn)))

    def read(self, remote_fn: str) -> list[str]:
        """Return the text of a file of each machine."""
        return self._on_all(lambda task: task.read(remote_fn))

    def write(self, remote_fn: str, contents: str) -> None:
        """Write a file on all machines."""
        self._on_all(lambda task: task.write(remote_fn, contents))

    def wait_for_file(self, fn: str, max_wait_sec: float | None = None) -> bool:
        """Wait for a file on all machines; return whether it came everywhere in time."""
        return all(self._on_all(lambda task: task.wait_for_file(fn, max_wait_sec)))

    def propagate_env(self, env_vars: Sequence[str]) -> None:
        """Set variables of this process in the shells of all machines."""
        self._on_all(lambda task: task.propagate_env(env_vars))

    def stop(self) -> None:
        """Stop all machines; their disks stay. `make_job` starts them again.

        Spot machines cannot be stopped, so they go on until `kill` or their deadline.
        """
        if self._group.record.request.is_spot:
            text = "are spot machines, which cannot be stopped; they go on until kill() or deadline"
            print(f"the machines of {self.name} {text}", file=sys.stderr, flush=True)
            return
        self._group.stop()

    def kill(self) -> None:
        """End all machines, and delete everything else of the group."""
        self._group.down(lambda text: print(text, file=sys.stderr, flush=True))

    def _on_all(self, call: Callable[[FastGpuTask], T]) -> list[T]:
        """Return the results for all machines; the first error is raised when all have ended."""
        with ThreadPoolExecutor(NUM_THREADS) as pool:
            return list(pool.map(call, self.tasks))


class FastGpuRun:
    """Several jobs whose logs belong together.

    Args:
        name: Name of the run.

    Attributes:
        name: Name of the run.
        jobs: Jobs that were made for it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.jobs: list[FastGpuJob] = []

    @property
    def logdir(self) -> str:
        """Folder for logs of the first job."""
        return self.jobs[0].logdir
